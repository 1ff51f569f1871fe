#include "models/layers/indexer.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/indexer.h"
#include "kernels/latent_cache.h"

namespace baton::models {
namespace {

// What DeepSeek V3.2's own code sets for the indexer's key norm, of either kind.
constexpr float kKeyNormEpsilon = 1e-6f;

// k: `rows` rows of stored_dim.
void norm_keys(const IndexerWeights& weights, const IndexerStep& step, float* k, int64_t rows, ComputePool& pool) {
  const int64_t dim = step.config.dim, stride = step.config.stored_dim();
  switch (step.config.key_norm) {
    case IndexKeyNorm::kLayer:
      return kernels::layer_norm(k, stride, weights.k_norm.data(), weights.k_norm_bias.data(), kKeyNormEpsilon, k,
                                 stride, rows, dim, step.isa, pool);
    case IndexKeyNorm::kRms:
      return kernels::rms_norm(k, stride, weights.k_norm.data(), kKeyNormEpsilon, k, stride, rows, dim, step.isa, pool);
    case IndexKeyNorm::kNone:
      return;
  }
}

}  // namespace

Result<IndexSelection> IndexSelection::allocate(const IndexerConfig& config, int64_t max_rows, int64_t max_positions,
                                                int threads, parallel::Group group, const parallel::RankPlace& place) {
  IndexSelection selection;
  selection.stride_ = config.top_k + config.pool - 1;
  selection.max_positions_ = max_positions;
  selection.slices_.reserve(static_cast<size_t>(max_rows));
  const auto bytes = [&](int64_t features) { return static_cast<size_t>(max_rows * features) * sizeof(float); };
  BATON_TRY_ASSIGN(selection.positions_, group.share(bytes(selection.stride_)));
  BATON_TRY_ASSIGN(selection.counts_, group.share(bytes(1)));
  BATON_TRY_ASSIGN(selection.q_, TeamRows::allocate(group, max_rows, int64_t{config.heads} * config.dim));
  BATON_TRY_ASSIGN(selection.k_, TeamRows::allocate(group, max_rows, config.stored_dim()));
  BATON_TRY_ASSIGN(selection.weights_, TeamRows::allocate(group, max_rows, config.heads));
  size_t scratch = kernels::index_select_scratch_bytes(config.stored_dim(), max_positions, threads);
  if (place.sizes.context_size() > 1) {
    const int ranks = place.sizes.context_size();
    scratch = std::max(scratch, kernels::index_candidates_scratch_bytes(config.stored_dim(), max_positions, ranks,
                                                                        place.sizes.interleave, config.top_k, threads));
    const int64_t rows = std::min(max_rows, TeamStep::kFewRows);
    selection.candidates_bytes_ = (kernels::index_candidates_bytes(rows, ranks, config.top_k) + 63) / 64 * 64;
    BATON_TRY_ASSIGN(selection.candidates_,
                     group.share(selection.candidates_bytes_ * static_cast<size_t>(place.context_groups())));
  }
  BATON_TRY_ASSIGN(selection.scratch_, tensor::Buffer::allocate(scratch));
  return selection;
}

void IndexSelection::project(const IndexerWeights& weights, const IndexerStep& step, QuantizedInput& x,
                             ComputePool& pool) {
  const IndexerConfig& config = step.config;
  float* k = k_.gathered();
  weights.k.apply(x, k, config.stored_dim(), pool);
  if (weights.pool_gate) weights.pool_gate->apply(x, k + config.dim, config.stored_dim(), pool);
  weights.head_weights.apply(x, weights_.gathered(), config.heads, pool);
}

void IndexSelection::make_keys(const IndexerWeights& weights, const IndexerStep& step, const TeamStep& team,
                               ComputePool& pool) {
  const IndexerConfig& config = step.config;
  const parallel::Share mine = team.mine();
  const int64_t stride = config.stored_dim();
  float* k = k_.take(team, stride) + mine.begin * stride;
  norm_keys(weights, step, k, mine.count(), pool);
  if (config.rope_dim == 0) return;
  kernels::apply_rope(k, stride, 1, config.dim, config.rope_dim, step.positions + mine.begin, step.cos_sin,
                      config.pairing, mine.count(), step.isa, pool);
}

void IndexSelection::store_keys(const IndexerWeights& weights, const IndexerStep& step, const TeamStep& team,
                                QuantizedInput& cq, ComputePool& pool) {
  kernels::write_index_keys(step.cache, step.slices, k_.made(team), step.config.stored_dim(), step.isa, pool);
  weights.q_b.apply(cq, q_.gathered(), int64_t{step.config.heads} * step.config.dim, pool);
}

void IndexSelection::rotate(const IndexerStep& step, parallel::Share rows, float* q, ComputePool& pool) const {
  const IndexerConfig& config = step.config;
  if (config.rope_dim == 0) return;
  const int64_t features = int64_t{config.heads} * config.dim;
  kernels::apply_rope(q + rows.begin * features, features, config.heads, config.dim, config.rope_dim,
                      step.positions + rows.begin, step.cos_sin, config.pairing, rows.count(), step.isa, pool);
}

kernels::SelectArgs IndexSelection::select_args(const IndexerWeights& weights, const IndexerStep& step,
                                                const float* q) {
  const IndexerConfig& config = step.config;
  // The factor heads^-0.5 dim^-0.5 is above 0 and the same for all: it changes no selection, so it is left out.
  return {.indexer = {.cache = step.cache,
                      .heads = config.heads,
                      .q = q,
                      .q_stride = int64_t{config.heads} * config.dim,
                      .weights = weights_.gathered(),
                      .weights_stride = config.heads,
                      .pool = config.pool,
                      .pool_bias = config.pool > 1 ? weights.pool_bias.data() : nullptr,
                      .isa = step.isa},
          .top_k = config.top_k,
          .selected = positions_->as<int32_t>(),
          .selected_stride = stride_,
          .selected_count = counts_->as<int32_t>()};
}

void IndexSelection::select(const IndexerWeights& weights, const IndexerStep& step, TeamStep& team, ComputePool& pool) {
  if (candidates_ != nullptr && team.few()) return select_spread(weights, step, team, pool);
  const parallel::Share rows = team.cut();
  if (rows.count() == 0) return;
  rotate(step, rows, q_.gathered(), pool);
  clip_slices(step.slices, rows, slices_);
  kernels::index_select(select_args(weights, step, q_.gathered()), slices_, max_positions_,
                        {scratch_.data(), scratch_.size()}, pool);
}

void IndexSelection::select_spread(const IndexerWeights& weights, const IndexerStep& step, TeamStep& team,
                                   ComputePool& pool) {
  const parallel::RankPlace& place = step.place;
  const int64_t features = int64_t{step.config.heads} * step.config.dim;
  float* q = q_.take(team, features);
  const parallel::Share served = parallel::share_of(team.rows(), place.context_groups(), place.context_group());
  rotate(step, served, q, pool);
  clip_slices(step.slices, served, slices_);
  const kernels::SelectArgs args = select_args(weights, step, q);
  const kernels::IndexCandidates candidates = {
      .data = candidates_->data() + candidates_bytes_ * static_cast<size_t>(place.context_group()),
      .ranks = place.sizes.context_size(),
      .top_k = step.config.top_k};
  const std::span<std::byte> scratch = {scratch_.data(), scratch_.size()};
  if (served.count() > 0) kernels::index_candidates(args, slices_, max_positions_, candidates, scratch, pool);
  team.gathered();
  const parallel::Share own = parallel::share_of(served.count(), candidates.ranks, place.context_rank());
  if (own.count() == 0) return;
  kernels::select_candidates(args, slices_, {.first = own.begin, .count = own.count()}, candidates, scratch, pool);
}

void IndexSelection::pack(parallel::Share rows, float* out) const {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    float* to = out + r * packed_stride();
    std::memcpy(to, counts() + r, sizeof(int32_t));
    std::memcpy(to + 1, positions() + r * stride_, static_cast<size_t>(stride_) * sizeof(int32_t));
  }
}

void IndexSelection::unpack(parallel::Share rows, const float* packed) {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* from = packed + r * packed_stride();
    std::memcpy(counts_->as<int32_t>() + r, from, sizeof(int32_t));
    std::memcpy(positions_->as<int32_t>() + r * stride_, from + 1, static_cast<size_t>(stride_) * sizeof(int32_t));
  }
}

void clip_slices(std::span<const kernels::SequenceSlice> slices, parallel::Share rows,
                 std::vector<kernels::SequenceSlice>& out) {
  out.clear();
  for (kernels::SequenceSlice slice : slices) {
    const int64_t begin = std::max<int64_t>(slice.row_begin, rows.begin);
    const int64_t end = std::min<int64_t>(slice.row_begin + slice.row_count, rows.end);
    if (begin >= end) continue;
    slice.context_len += begin - slice.row_begin;
    slice.row_begin = static_cast<int>(begin);
    slice.row_count = static_cast<int>(end - begin);
    out.push_back(slice);
  }
}

void run_indexer(const IndexerWeights& weights, const IndexerStep& step, IndexSelection& selection, QuantizedInput& x,
                 QuantizedInput& cq, ComputePool& pool) {
  TeamStep team({}, step.rows);
  selection.project(weights, step, x, pool);
  selection.make_keys(weights, step, team, pool);
  selection.store_keys(weights, step, team, cq, pool);
  selection.select(weights, step, team, pool);
}

}  // namespace baton::models
