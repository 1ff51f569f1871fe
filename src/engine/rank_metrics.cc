#include "engine/rank_metrics.h"

#include <algorithm>

namespace baton::engine {
namespace {

// Of the positions below `end`.
int64_t tokens_below(int64_t end, int rank, int size, int block_size) {
  const int64_t round = int64_t{size} * block_size;
  const int64_t rest = end % round - int64_t{rank} * block_size;
  return end / round * block_size + std::clamp<int64_t>(rest, 0, block_size);
}

}  // namespace

int64_t context_tokens(int64_t first, int64_t count, int rank, int size, int block_size) {
  if (size == 1) return count;
  return tokens_below(first + count, rank, size, block_size) - tokens_below(first, rank, size, block_size);
}

RankMetrics::RankMetrics(MetricRegistry& registry, const parallel::GridSizes& sizes, int block_size,
                         int64_t block_count)
    : context_size_(sizes.context_size()),
      block_size_(block_size),
      filled_(static_cast<size_t>(block_count)),
      blocks_(static_cast<size_t>(context_size_)) {
  for (int stage = 0; stage < sizes.pp; ++stage) {
    for (int team_rank = 0; team_rank < sizes.team_size(); ++team_rank) {
      const parallel::RankPlace place{.sizes = sizes, .stage = stage, .team_rank = team_rank};
      const Labels labels{{"rank", place.text()}};
      ranks_.push_back(
          {.context_rank = place.context_rank(),
           .tokens = registry.counter("baton:rank_kv_tokens_total",
                                      "Tokens whose KV this rank has taken into its cache.", labels),
           .blocks = registry.gauge("baton:rank_kv_blocks_used",
                                    "Blocks of this rank with KV in them, in use or kept as prefixes.", labels)});
    }
  }
}

void RankMetrics::on_tokens(int64_t first_position, int64_t count, std::span<const BlockId> table) {
  for (auto& rank : ranks_) {
    const auto held = context_tokens(first_position, count, rank.context_rank, context_size_, block_size_);
    if (held > 0) rank.tokens.add(static_cast<double>(held));
  }
  const int64_t block_tokens = int64_t{block_size_} * context_size_, end = first_position + count;
  for (int64_t i = first_position / block_tokens; i * block_tokens < end; ++i) {
    const auto block = table[static_cast<size_t>(i)];
    const int64_t tokens = std::min(end - i * block_tokens, block_tokens);
    if (tokens > filled_[static_cast<size_t>(block.value)]) fill(block, tokens);
  }
}

void RankMetrics::fill(BlockId block, int64_t tokens) {
  auto& filled = filled_[static_cast<size_t>(block.value)];
  for (int64_t rank = 0; rank < context_size_; ++rank) {
    const int64_t begin = rank * block_size_;
    blocks_[static_cast<size_t>(rank)] += (tokens > begin) - (filled > begin);
  }
  filled = tokens;
}

void RankMetrics::publish() {
  for (auto& rank : ranks_) rank.blocks.set(static_cast<double>(blocks_[static_cast<size_t>(rank.context_rank)]));
}

}  // namespace baton::engine
