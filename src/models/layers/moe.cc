#include "models/layers/moe.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "kernels/mixing.h"

namespace baton::models {

ExpertPlan::ExpertPlan(int experts, int64_t max_pairs)
    : begins_(static_cast<size_t>(experts) + 1),
      next_(static_cast<size_t>(experts)),
      source_rows_(static_cast<size_t>(max_pairs)),
      places_(static_cast<size_t>(max_pairs)) {}

template <typename RowOf>
void ExpertPlan::sort_by(const int32_t* ids, int64_t pairs, RowOf row_of) {
  pairs_ = pairs;
  BATON_CHECK(pairs_ <= std::ssize(places_), "pairs={} of {}", pairs_, places_.size());
  std::ranges::fill(begins_, 0);
  for (int64_t i = 0; i < pairs_; ++i) ++begins_[static_cast<size_t>(ids[i]) + 1];
  for (size_t e = 1; e < begins_.size(); ++e) begins_[e] += begins_[e - 1];
  std::copy_n(begins_.begin(), next_.size(), next_.begin());
  for (int64_t i = 0; i < pairs_; ++i) {
    const int64_t place = next_[static_cast<size_t>(ids[i])]++;
    source_rows_[static_cast<size_t>(place)] = row_of(i);
    places_[static_cast<size_t>(i)] = static_cast<int32_t>(place);
  }
}

void ExpertPlan::sort(const int32_t* ids, int64_t rows, int slots) {
  sort_by(ids, rows * slots, [slots](int64_t i) { return static_cast<int32_t>(i / slots); });
}

void ExpertPlan::sort_pairs(const int32_t* experts, const int32_t* rows, int64_t pairs) {
  sort_by(experts, pairs, [rows](int64_t i) { return rows[i]; });
}

Result<MoeScratch> MoeScratch::allocate(const MoeShape& shape, int64_t max_rows, int64_t pass_rows,
                                        parallel::Group group, const MoeReplicaSetup& replicas) {
  BATON_TRY(kernels::check_router(shape.router));
  MoeScratch scratch;
  scratch.pass_rows_ = std::min(max_rows, pass_rows);
  const int64_t top_k = shape.router.top_k, width = shape.expert_features;
  int64_t pairs = scratch.pass_rows_ * top_k;
  const parallel::GridSizes& sizes = replicas.place.sizes;
  if (sizes.expert_parallel && sizes.dp > 1) {
    // All replicas take the same number of rows at once, whatever they were prepared for.
    MoeReplicas::Shape spread = {.pass_rows = pass_rows, .slots = shape.router.top_k, .width = width};
    for (int p = 0; p <= sizes.dp; ++p) {
      spread.first_expert.push_back(
          parallel::share_of(shape.router.experts, sizes.dp * sizes.team_size(), p * sizes.team_size()).begin);
    }
    BATON_TRY_ASSIGN(scratch.replicas_, MoeReplicas::allocate(group, std::move(spread), replicas.exchange));
    scratch.pass_rows_ = scratch.replicas_->pass_rows();
    pairs = scratch.replicas_->pairs_max();
    scratch.straight_.resize(static_cast<size_t>(scratch.pass_rows_ * top_k));
    std::iota(scratch.straight_.begin(), scratch.straight_.end(), 0);
  }
  scratch.plan_ = ExpertPlan(shape.router.experts, pairs);
  scratch.groups_.reserve(static_cast<size_t>(shape.router.experts));
  // Ranks get about as many pairs each; one that gets more takes them in several goes.
  constexpr int64_t kChunkPairs = 64;
  const int64_t part = 2 * (pairs + group.size() - 1) / group.size();
  scratch.chunk_pairs_ = group.size() == 1 ? pairs : std::min(pairs, std::max(kChunkPairs, part));
  const auto floats = [](tensor::Buffer& buffer, int64_t count) -> Result<void> {
    BATON_TRY_ASSIGN(buffer, tensor::Buffer::allocate(static_cast<size_t>(count) * sizeof(float)));
    return {};
  };
  BATON_TRY_ASSIGN(scratch.activations_,
                   kernels::ActivationBuffer::allocate(scratch.chunk_pairs_, std::max(width, shape.intermediate)));
  BATON_TRY_ASSIGN(scratch.logits_, TeamRows::allocate(group, max_rows, shape.router.experts));
  BATON_TRY_ASSIGN(scratch.ids_, TeamRows::allocate(group, max_rows, top_k));
  BATON_TRY_ASSIGN(scratch.weights_, TeamRows::allocate(group, max_rows, top_k));
  BATON_TRY(floats(scratch.sorted_, scratch.chunk_pairs_ * width));
  BATON_TRY(floats(scratch.gate_, scratch.chunk_pairs_ * shape.intermediate));
  BATON_TRY(floats(scratch.up_, scratch.chunk_pairs_ * shape.intermediate));
  if (group.size() > 1) {
    BATON_TRY_ASSIGN(scratch.outputs_, group.share(static_cast<size_t>(pairs * width) * sizeof(float)));
  }
  if (width != shape.hidden) {
    BATON_TRY_ASSIGN(scratch.latent_, TeamRows::allocate(group, max_rows, width));
    BATON_TRY(floats(scratch.hidden_, max_rows * TeamStep::columns_of(shape.hidden, group).count()));
  }
  if (shape.shared_intermediate > 0) {
    BATON_TRY_ASSIGN(scratch.shared_, MlpScratch::allocate(max_rows, shape.shared_intermediate, group));
  }
  return scratch;
}

// One call of moe_forward.
class MoeForward {
 public:
  MoeForward(const MoeWeights& weights, const MoeStep& step, TeamStep& team, MoeScratch& scratch, ComputePool& pool)
      : weights_(weights), step_(step), shape_(step.shape), team_(team), scratch_(scratch), pool_(pool) {}

  void run(QuantizedInput& input, float* y) {
    if (team_.rows() > 0) {
      project(input);
      team_.gathered();
      choose();
      team_.rows_made();
      if (weights_.shared) mlp_finish(*weights_.shared, team_, *scratch_.shared_, input, y, shape_.hidden, pool_);
    }
    // Experts read rows of x and write rows of out, expert_features wide; out may be x.
    const bool latent = weights_.latent_down.has_value();
    const float* x = latent ? scratch_.latent_.gathered() : step_.x;
    float* out = latent ? scratch_.latent_.gathered() : y;
    if (scratch_.replicas_) {
      run_replicas(x, out);
    } else {
      run_passes(x, out);
    }
    if (latent && team_.rows() > 0) leave_latent(input, y);
    team_.gathered();
  }

 private:
  // All that reads the layer's input.
  void project(QuantizedInput& input) {
    weights_.router.apply(input, scratch_.logits_.gathered(), shape_.router.experts, pool_);
    if (weights_.latent_down) {
      weights_.latent_down->apply(input, scratch_.latent_.gathered(), shape_.expert_features, pool_);
    }
    if (weights_.shared) {
      mlp_activate(*weights_.shared, team_, *scratch_.shared_, input, step_.isa, pool_, shape_.activation);
    }
  }

  int32_t* ids() { return reinterpret_cast<int32_t*>(scratch_.ids_.made(team_)); }

  void choose() {
    const parallel::Share mine = team_.mine();
    const int64_t experts = shape_.router.experts, slots = shape_.router.top_k;
    kernels::route(shape_.router, weights_.correction.empty() ? nullptr : weights_.correction.data(),
                   scratch_.logits_.take(team_, experts) + mine.begin * experts, experts, mine.count(),
                   ids() + mine.begin * slots, scratch_.weights_.made(team_) + mine.begin * slots, step_.isa, pool_);
  }

  void run_passes(const float* x, float* out) {
    const int slots = shape_.router.top_k;
    for (int64_t begin = 0; begin < team_.rows(); begin += scratch_.pass_rows_) {
      const int64_t rows = std::min(scratch_.pass_rows_, team_.rows() - begin);
      if (begin > 0) team_.gathered();  // the pass before has been combined
      scratch_.plan_.sort(ids() + begin * slots, rows, slots);
      run_experts(x + begin * shape_.expert_features);
      team_.gathered();
      combine(begin, rows, scratch_.outputs(), scratch_.plan_.places(), out);
    }
  }

  void run_replicas(const float* x, float* out) {
    MoeReplicas& replicas = *scratch_.replicas_;
    const int64_t slots = shape_.router.top_k, pass = scratch_.pass_rows_;
    bool more = true;
    for (int64_t begin = 0; more; begin += pass) {
      const int64_t rows = std::clamp<int64_t>(team_.rows() - begin, 0, pass);
      if (team_.rank() == 0) {
        replicas.offer(ids() + begin * slots, x + begin * shape_.expert_features, rows, begin + pass < team_.rows());
      }
      team_.gathered();
      more = replicas.more();
      scratch_.plan_.sort_pairs(replicas.experts(), replicas.source_rows(), replicas.pairs());
      run_experts(replicas.x());
      team_.gathered();
      if (team_.rank() == 0) replicas.give_back(scratch_.outputs(), scratch_.plan_.places());
      team_.gathered();
      if (rows > 0) combine(begin, rows, replicas.returned(), scratch_.straight_.data(), out);
    }
  }

  // The outputs of those of the plan's pairs that are of the rank's experts. x: the plan's rows.
  void run_experts(const float* x) {
    const auto& begins = scratch_.plan_.begins();
    const auto first = static_cast<size_t>(weights_.first_expert);
    const int64_t end = begins[first + weights_.gate.size()];
    for (int64_t pair = begins[first]; pair < end; pair += scratch_.chunk_pairs_) {
      multiply_chunk(x, pair, std::min(end, pair + scratch_.chunk_pairs_));
    }
  }

  // The rank's columns of rows [begin, begin + rows) of out = their slots' outputs, weighted (+ out, the shared
  // experts').
  void combine(int64_t begin, int64_t rows, const float* outputs, const int32_t* places, float* out) {
    const int64_t width = shape_.expert_features;
    const parallel::Share columns = team_.columns(width);
    if (columns.count() == 0) return;
    const int slots = shape_.router.top_k;
    float* y = out + begin * width + columns.begin;
    kernels::combine_slots({.outputs = outputs + columns.begin,
                            .outputs_stride = width,
                            .places = places,
                            .weights = scratch_.weights_.made(team_) + begin * slots,
                            .slots = slots,
                            .shared = weights_.shared && !weights_.latent_down ? y : nullptr,
                            .shared_stride = width,
                            .y = y,
                            .y_stride = width,
                            .rows = rows,
                            .features = columns.count(),
                            .isa = step_.isa},
                           pool_);
  }

  // The outputs of sorted pairs [begin, end), which are of the rank's experts.
  void multiply_chunk(const float* x, int64_t begin, int64_t end) {
    begin_ = begin;
    end_ = end;
    auto* sorted = scratch_.sorted_.as<float>();
    auto* gate = scratch_.gate_.as<float>();
    auto* up = scratch_.up_.as<float>();
    gather(x, sorted);
    multiply(weights_.gate, sorted, gate);
    multiply(weights_.up, sorted, up);
    shape_.activation.apply(gate, up, gate, shape_.intermediate, end - begin, shape_.intermediate, step_.isa, pool_);
    multiply(weights_.down, gate, scratch_.outputs() + begin * shape_.expert_features);
  }

  void gather(const float* x, float* sorted) {
    const int64_t width = shape_.expert_features;
    const int32_t* rows = scratch_.plan_.source_rows() + begin_;
    quantized_ = nullptr;
    pool_.parallel_for(end_ - begin_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::copy_n(x + rows[i] * width, width, sorted + i * width);
    });
  }

  // Of the chunk's pairs, those of the rank's expert e: [begin, end), counted from the chunk's first.
  std::pair<int64_t, int64_t> pairs_of(size_t e) const {
    const auto& begins = scratch_.plan_.begins();
    const size_t expert = static_cast<size_t>(weights_.first_expert) + e;
    return {std::clamp(begins[expert], begin_, end_) - begin_, std::clamp(begins[expert + 1], begin_, end_) - begin_};
  }

  // out[i] = W[expert of pair i] x[i]. Two lists of one format over the same x share its quantised rows.
  void multiply(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out);
  void multiply_static(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out);

  // The rank's columns of y (+)= latent_up RMSNorm(combined).
  void leave_latent(QuantizedInput& input, float* y) {
    team_.gathered();
    const int64_t width = shape_.expert_features, rows = team_.rows();
    const parallel::Share mine = team_.mine(), columns = team_.columns(shape_.hidden);
    float* latent = scratch_.latent_.take(team_, width);
    if (!weights_.latent_norm.empty()) {
      float* own = latent + mine.begin * width;
      kernels::rms_norm(own, width, weights_.latent_norm.data(), shape_.norm_eps, own, width, mine.count(), width,
                        step_.isa, pool_);
      team_.rows_made();
    }
    input.set(latent, rows, width, &team_);
    if (!weights_.shared) return weights_.latent_up->apply(input, y, shape_.hidden, pool_);
    float* hidden = scratch_.hidden_.as<float>();
    weights_.latent_up->apply_held(input, hidden, columns.count(), pool_);
    if (columns.count() == 0) return;
    kernels::add(hidden, columns.count(), y + columns.begin, shape_.hidden, rows, columns.count(), step_.isa, pool_);
  }

  const MoeWeights& weights_;
  const MoeStep& step_;
  const MoeShape& shape_;
  TeamStep& team_;
  MoeScratch& scratch_;
  ComputePool& pool_;
  int64_t begin_ = 0, end_ = 0;       // the chunk's pairs
  const float* quantized_ = nullptr;  // what scratch_.activations_ holds
};

void MoeForward::multiply(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out) {
  const kernels::MatmulSpec& spec = experts[0].spec();
  const kernels::ActivationFormat format = kernels::activation_format(spec.dtype);
  if (format == kernels::ActivationFormat::kInt8Static) {
    multiply_static(experts, x, out);
    return;
  }
  kernels::ActivationBuffer& activations = scratch_.activations_;
  if (quantized_ != x || activations.format() != format) {
    activations.quantize(x, spec.in_features, end_ - begin_, spec.in_features, format, spec.isa, pool_);
    quantized_ = x;
  }
  scratch_.groups_.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    const auto [begin, end] = pairs_of(e);
    if (begin < end) scratch_.groups_.push_back({.w = &experts[e], .row_begin = begin, .row_count = end - begin});
  }
  kernels::matmul_groups(scratch_.groups_, activations, out, spec.out_features, pool_);
}

// Each expert has an activation scale of its own.
void MoeForward::multiply_static(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out) {
  for (size_t e = 0; e < experts.size(); ++e) {
    const kernels::MatmulSpec& spec = experts[e].spec();
    const auto [begin, end] = pairs_of(e);
    if (begin == end) continue;
    scratch_.activations_.quantize(x + begin * spec.in_features, spec.in_features, end - begin, spec.in_features,
                                   kernels::ActivationFormat::kInt8Static, spec.isa, pool_, experts[e].static_quant());
    kernels::matmul(experts[e], scratch_.activations_, nullptr, out + begin * spec.out_features, spec.out_features,
                    pool_);
  }
  quantized_ = nullptr;
}

void moe_forward(const MoeWeights& weights, const MoeStep& step, TeamStep& team, MoeScratch& scratch,
                 QuantizedInput& input, float* y, ComputePool& pool) {
  const size_t count = weights.gate.size(), end = static_cast<size_t>(weights.first_expert) + count;
  BATON_CHECK(weights.up.size() == count && weights.down.size() == count &&
                  end <= static_cast<size_t>(step.shape.router.experts),
              "experts={} {} {} to {} of {}", count, weights.up.size(), weights.down.size(), end,
              step.shape.router.experts);
  MoeForward(weights, step, team, scratch, pool).run(input, y);
}

}  // namespace baton::models
