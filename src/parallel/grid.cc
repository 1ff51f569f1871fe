#include "parallel/grid.h"

#include <algorithm>
#include <numeric>

namespace baton::parallel {

Share share_of(int64_t total, int parts, int index, int64_t unit) {
  const int64_t units = (total + unit - 1) / unit;
  const auto border = [&](int64_t i) { return std::min(total, units * i / parts * unit); };
  return {border(index), border(index + 1)};
}

std::vector<int64_t> share_borders(int64_t total, int parts, int64_t unit) {
  std::vector<int64_t> borders;
  for (int i = 0; i < parts; ++i) borders.push_back(share_of(total, parts, i, unit).begin);
  borders.push_back(total);
  return borders;
}

std::string GridSizes::text() const {
  return fmt::format("dp{} pp{} pcp{} tp{} dcp{}{}", dp, pp, pcp, tp, dcp, expert_parallel ? " ep" : "");
}

std::string RankPlace::text() const {
  std::string text = fmt::format("pp{} pcp{} tp{}", stage, pcp_rank(), tp_rank());
  return sizes.dp > 1 ? fmt::format("dp{} {}", dp_rank, text) : text;
}

namespace {

Result<void> check_context(const GridSizes& sizes) {
  if (sizes.tp % sizes.dcp != 0) {
    return fail(Code::kInvalidArgument,
                "decode context parallelism is laid over the tensor ranks: its size must divide theirs; got {} and {}",
                sizes.dcp, sizes.tp);
  }
  const int ranks = sizes.context_size();
  if (ranks == 1) return {};
  if (ranks > kLanes) {
    return fail(Code::kInvalidArgument, "at most {} ranks can share a context (pcp * dcp), got {} * {}", kLanes,
                sizes.pcp, sizes.dcp);
  }
  const int64_t around = int64_t{kLanes} * kSpanTokens;
  if (sizes.interleave < 1 || sizes.interleave % kSpanTokens != 0 ||
      around % (int64_t{sizes.interleave} * ranks) != 0) {
    return fail(
        Code::kInvalidArgument,
        "an interleave of {} tokens over {} context ranks would part a lane of attention: it must be a multiple "
        "of {}, and times {} it must divide {}",
        sizes.interleave, ranks, kSpanTokens, ranks, around);
  }
  return {};
}

}  // namespace

Result<void> check_grid(const GridSizes& sizes, const GridLimits& limits) {
  for (const auto& [name, size] :
       {std::pair{"data", sizes.dp}, std::pair{"pipeline", sizes.pp}, std::pair{"prefill context", sizes.pcp},
        std::pair{"tensor", sizes.tp}, std::pair{"decode context", sizes.dcp}}) {
    if (size < 1) return fail(Code::kInvalidArgument, "the {}-parallel size must be at least 1, got {}", name, size);
  }
  if (sizes.tp > kTensorRanksMax) {
    return fail(Code::kInvalidArgument, "at most {} tensor-parallel ranks, got {}", kTensorRanksMax, sizes.tp);
  }
  BATON_TRY(check_context(sizes));
  if (sizes.team_size() > limits.heads) {
    return fail(Code::kInvalidArgument, "pcp * tp = {} * {} ranks share {} attention heads: each needs one", sizes.pcp,
                sizes.tp, limits.heads);
  }
  if (sizes.pp > limits.layers) {
    return fail(Code::kInvalidArgument, "{} pipeline stages for {} layers: each needs one", sizes.pp, limits.layers);
  }
  return {};
}

Result<std::vector<Share>> stage_layers(int layers, int pp, const std::vector<int>& partition) {
  std::vector<int> counts = partition;
  if (counts.empty()) {
    counts.assign(static_cast<size_t>(pp), layers / pp);
    for (int i = 0; i < layers % pp; ++i) ++counts[static_cast<size_t>(std::max(0, pp - 2 - i))];
  }
  if (std::ssize(counts) != pp || std::accumulate(counts.begin(), counts.end(), int64_t{0}) != layers ||
      std::ranges::any_of(counts, [](int count) { return count < 1; })) {
    return fail(Code::kInvalidArgument,
                "VLLM_PP_LAYER_PARTITION={} must be {} positive numbers, one a stage, that add up to the model's {} "
                "layers",
                fmt::join(counts, ","), pp, layers);
  }
  std::vector<Share> stages;
  int64_t begin = 0;
  for (const int count : counts) {
    stages.push_back({begin, begin + count});
    begin += count;
  }
  return stages;
}

}  // namespace baton::parallel
