// The grid of ranks that one engine is, and what each rank holds of a model. Pure arithmetic.
//
// A rank is one "device": a thread with its share of weights and a cache of its own. Data-parallel replicas hold `dp`
// copies of a model; a replica is cut into `pp` pipeline stages of consecutive layers; a stage is a team of pcp * tp
// ranks. Decode context parallelism is laid over the tensor ranks.
//
// A team shares a layer by outputs: every matrix is cut by its rows, heads and columns alike, and never along the sum,
// so that each output is summed by one rank in the order that one rank alone would take (docs/exactness.md). Ranks of
// prefill context parallelism share heads and columns as tensor ranks do. Experts are whole.
//
// With N = pcp * dcp > 1 a sequence's KV is spread over N context ranks: position t is held by context rank
// (t / interleave) mod N. A context rank's block holds `interleave` tokens, and one block number serves them all: block
// b of a sequence's i-th place holds positions [i N I + c I, i N I + (c + 1) I) on context rank c.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::parallel {

// [begin, end) of something that is cut.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
  bool contains(int64_t i) const { return begin <= i && i < end; }
  bool operator==(const Share&) const = default;
};

// Share `index` of `total` things cut into `parts` as evenly as whole units of `unit` things allow.
Share share_of(int64_t total, int parts, int index, int64_t unit = 1);
// parts + 1 borders of these shares.
std::vector<int64_t> share_borders(int64_t total, int parts, int64_t unit = 1);

struct GridSizes {
  int dp = 1;
  int pp = 1;
  int pcp = 1;
  int tp = 1;
  int dcp = 1;                   // divides tp
  bool expert_parallel = false;  // experts over dp * pcp * tp ranks; else over the pcp * tp of a stage
  int interleave = 768;          // tokens; of use with context_size() > 1

  int team_size() const { return pcp * tp; }
  int context_size() const { return pcp * dcp; }
  // Ranks of one replica.
  int replica_size() const { return pp * team_size(); }
  // "dp2 pp4 pcp4 tp4 dcp1 ep": for logs and for what meets to compare.
  std::string text() const;
  bool operator==(const GridSizes&) const = default;
};

// What a grid must fit.
struct GridLimits {
  int layers = 1;
  int heads = 1;    // of attention, the least of all layers
  int experts = 0;  // 0: none
};

inline constexpr int kLanes = 16;        // of attention (docs/exactness.md, rule 4)
inline constexpr int kSpanTokens = 768;  // of a lane
inline constexpr int kTensorRanksMax = 16;

// kInvalidArgument with the rule that excludes the grid.
Result<void> check_grid(const GridSizes& sizes, const GridLimits& limits);

// Layers of each stage: as given (one number a stage), or, when `partition` is empty, as vLLM cuts them: evenly, what
// is left over to the stages before the last, from the back. kInvalidArgument when the numbers don't fit.
Result<std::vector<Share>> stage_layers(int layers, int pp, const std::vector<int>& partition = {});

// Where a rank stands.
struct RankPlace {
  GridSizes sizes;
  int dp_rank = 0;
  int stage = 0;
  int team_rank = 0;  // pcp_rank * tp + tp_rank

  int pcp_rank() const { return team_rank / sizes.tp; }
  int tp_rank() const { return team_rank % sizes.tp; }
  // Which positions it holds.
  int context_rank() const { return pcp_rank() * sizes.dcp + tp_rank() % sizes.dcp; }
  // Ranks that hold different positions of the same heads: tp / dcp groups of a team.
  int context_group() const { return tp_rank() / sizes.dcp; }
  int context_groups() const { return sizes.tp / sizes.dcp; }
  // Team rank of context rank `c` of its own group.
  int context_peer(int c) const { return (c / sizes.dcp) * sizes.tp + context_group() * sizes.dcp + c % sizes.dcp; }
  int expert_ranks() const { return (sizes.expert_parallel ? sizes.dp : 1) * sizes.team_size(); }
  int expert_rank() const { return (sizes.expert_parallel ? dp_rank * sizes.team_size() : 0) + team_rank; }
  // Number of a rank within its replica, stages first.
  int replica_rank() const { return stage * sizes.team_size() + team_rank; }
  bool first_stage() const { return stage == 0; }
  bool last_stage() const { return stage == sizes.pp - 1; }

  Share heads(int64_t total) const { return share_of(total, sizes.team_size(), team_rank); }
  Share experts(int64_t total) const { return share_of(total, expert_ranks(), expert_rank()); }
  // "pp1 pcp0 tp3", as log lines and thread names have it.
  std::string text() const;
};

}  // namespace baton::parallel
