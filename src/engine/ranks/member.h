// A process of an engine that is not the leading one: computes its stages of every step it is told, until the leader
// ends or a member is lost. It serves nobody itself.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/kv_budget.h"
#include "engine/kv_host.h"
#include "engine/ranks/rank_set.h"
#include "parallel/mesh.h"

namespace baton::engine {

// What all processes of an engine agree on before the first step: the configuration must give the same on each, and the
// blocks and slots are the fewest that any has room for. Every process calls it. Loading takes as long as it takes:
// only the loss of one ends the wait for it.
Result<KvCounts> agree_on_counts(parallel::Mesh& mesh, const EngineConfig& config, const RankSet& ranks,
                                 KvCounts counts);

// Every process says it once its cache is there; returns when all have. `word`: for the others; theirs, by rank.
Result<std::vector<std::string>> say_ready(parallel::Mesh& mesh, const std::string& word = {});
// The two halves of it, for a process that is several members.
Result<void> send_ready(parallel::Mesh& mesh, const std::string& word);
Result<std::vector<std::string>> await_ready(parallel::Mesh& mesh, const std::string& word);

// Returns when the leader has ended in order; else why. `config` is that of the leader. The calling thread becomes the
// process's engine thread.
Result<void> run_member(EngineConfig config, std::unique_ptr<RankSet> ranks, parallel::Mesh& mesh,
                        const MakeKvHost& make_kv_host);

}  // namespace baton::engine
