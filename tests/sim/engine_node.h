// A simulated engine process: the real core (scheduler, block manager, worker, sampling) over the fake model with real
// KV bytes, in place of the engine thread an event per step, and a door and a server that speak the same JSON as ours.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/metrics.h"
#include "engine/engine_core.h"
#include "sim/handoff.h"
#include "sim/http.h"

namespace baton::sim {

// What a run has seen, for the table.
struct RunCounts {
  int requests = 0, greedy = 0, seeded = 0, unseeded = 0;
  int full = 0, errors = 0, cut = 0, left = 0;
  int handed_over = 0, failed_pulls = 0, checksum_failures = 0, stale = 0, expired = 0, mismatches = 0;
  int preemptions = 0, sent_back = 0, resumes = 0, colocated = 0;
  void add(const RunCounts& other);
};

// A core over the fake model. `pool`, `registry` and `clock` outlive it.
struct CoreOptions {
  int block_size = 4;
  int64_t blocks = 256, slots = 12;
  bool llama = false;
  int state_layers = 0;
  bool prefix_caching = true;
  bool recompute_scheduler = false;
  double preempt = 0;
  engine::KvRole role = engine::KvRole::kNone;
  engine::MakeKvHost make_host = engine::make_private_kv_host;
  std::function<void()> wake = [] {};
};
Result<std::unique_ptr<engine::EngineCore>> make_core(const CoreOptions& options, ComputePool& pool,
                                                      MetricRegistry& registry, const Clock& clock);

// Writes the Llama's checkpoint, which is removed when this process ends: it and its children use it.
void prepare_models();
// Token ids that a request may name.
int vocabulary(bool llama);

// Seeds that engines have drawn, by client: an answer without a seed of the client's must be that of one of these.
using DrawnSeeds = std::map<int, std::set<uint64_t>>;

class EngineNode {
 public:
  EngineNode(World& world, HandoffNet& net, const EnginePlan& plan, DrawnSeeds& seeds);
  ~EngineNode();

  void boot();
  void crash();
  void clock_jumped();
  Process& process() { return process_; }
  const EnginePlan& plan() const { return plan_; }

  // From the proxy's side of the network.
  void request(const CallPtr& call);
  void hang_up(const CallPtr& call);
  void abort_requests(const std::string& request_id);

  // Whether nothing is held for anybody; else what is.
  std::string leftovers() const;
  // Of all its lives.
  RunCounts counts() const;

 private:
  struct Answer;
  using AnswerPtr = std::shared_ptr<Answer>;
  void plan_step(Duration delay);
  void run_step();
  void serve(const CallPtr& call);
  Result<engine::EngineRequest> parse(const CallPtr& call, Answer& answer);
  void take(const AnswerPtr& answer, engine::RequestOutput&& output);
  void take_stream(Answer& answer, const engine::RequestOutput& output, const std::string& finish, bool left);
  void take_whole(Answer& answer, const engine::RequestOutput& output, const std::string& finish, bool left);
  void reply(const CallPtr& call, Reply reply);
  void refuse(const CallPtr& call, int status, const std::string& message);

  World& world_;
  HandoffNet& net_;
  const EnginePlan plan_;
  DrawnSeeds& seeds_;
  Process process_;
  ComputePool pool_{{.threads = 1, .spin_us = 0}};
  std::unique_ptr<MetricRegistry> registry_;
  SimHost* host_ = nullptr;
  std::unique_ptr<engine::EngineCore> core_;
  uint64_t planned_ = 0;  // the step that counts
  std::optional<TimePoint> step_at_;
  std::vector<std::function<void()>> commands_;
  std::map<std::string, AnswerPtr> live_;  // by engine id
  std::set<CallPtr> calls_;
  RunCounts before_;  // of earlier lives
};

}  // namespace baton::sim
