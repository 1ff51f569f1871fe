#include "models/layers/moe.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "kernels/mixing.h"

namespace baton::models {

ExpertPlan::ExpertPlan(int experts, int64_t max_pairs)
    : begins_(static_cast<size_t>(experts) + 1),
      next_(static_cast<size_t>(experts)),
      source_rows_(static_cast<size_t>(max_pairs)),
      places_(static_cast<size_t>(max_pairs)) {}

void ExpertPlan::sort(const int32_t* ids, int64_t rows, int slots) {
  pairs_ = rows * slots;
  BATON_CHECK(pairs_ <= std::ssize(places_), "pairs={} of {}", pairs_, places_.size());
  std::ranges::fill(begins_, 0);
  for (int64_t i = 0; i < pairs_; ++i) ++begins_[static_cast<size_t>(ids[i]) + 1];
  for (size_t e = 1; e < begins_.size(); ++e) begins_[e] += begins_[e - 1];
  std::copy_n(begins_.begin(), next_.size(), next_.begin());
  for (int64_t i = 0; i < pairs_; ++i) {
    const int64_t place = next_[static_cast<size_t>(ids[i])]++;
    source_rows_[static_cast<size_t>(place)] = static_cast<int32_t>(i / slots);
    places_[static_cast<size_t>(i)] = static_cast<int32_t>(place);
  }
}

Result<MoeScratch> MoeScratch::allocate(const MoeShape& shape, int64_t max_rows, int64_t pass_rows) {
  BATON_TRY(kernels::check_router(shape.router));
  MoeScratch scratch;
  scratch.pass_rows_ = std::min(max_rows, pass_rows);
  const int64_t top_k = shape.router.top_k, pairs = scratch.pass_rows_ * top_k;
  scratch.plan_ = ExpertPlan(shape.router.experts, pairs);
  scratch.groups_.reserve(static_cast<size_t>(shape.router.experts));
  const auto floats = [](tensor::Buffer& buffer, int64_t count) -> Result<void> {
    BATON_TRY_ASSIGN(buffer, tensor::Buffer::allocate(static_cast<size_t>(count) * sizeof(float)));
    return {};
  };
  BATON_TRY_ASSIGN(scratch.activations_,
                   kernels::ActivationBuffer::allocate(pairs, std::max(shape.expert_features, shape.intermediate)));
  BATON_TRY(floats(scratch.logits_, max_rows * shape.router.experts));
  BATON_TRY(floats(scratch.ids_, max_rows * top_k));
  BATON_TRY(floats(scratch.weights_, max_rows * top_k));
  BATON_TRY(floats(scratch.sorted_, pairs * shape.expert_features));
  BATON_TRY(floats(scratch.gate_, pairs * shape.intermediate));
  BATON_TRY(floats(scratch.up_, pairs * shape.intermediate));
  if (shape.expert_features != shape.hidden) {
    BATON_TRY(floats(scratch.latent_, max_rows * shape.expert_features));
    BATON_TRY(floats(scratch.hidden_, max_rows * shape.hidden));
  }
  if (shape.shared_intermediate > 0) {
    BATON_TRY_ASSIGN(scratch.shared_, MlpScratch::allocate(max_rows, shape.shared_intermediate));
  }
  return scratch;
}

// One call of moe_forward.
class MoeForward {
 public:
  MoeForward(const MoeWeights& weights, const MoeStep& step, MoeScratch& scratch, ComputePool& pool)
      : weights_(weights), step_(step), shape_(step.shape), scratch_(scratch), pool_(pool) {}

  void run(QuantizedInput& input, float* y) {
    choose(input);
    float* latent = weights_.latent_down ? scratch_.latent_.as<float>() : nullptr;
    if (latent != nullptr) weights_.latent_down->apply(input, latent, shape_.expert_features, pool_);
    if (weights_.shared) {
      mlp_forward(*weights_.shared, step_.rows, *scratch_.shared_, input, y, step_.isa, pool_, shape_.activation);
    }
    for (int64_t begin = 0; begin < step_.rows; begin += scratch_.pass_rows_) {
      const int64_t rows = std::min(scratch_.pass_rows_, step_.rows - begin);
      if (latent != nullptr) {
        float* z = latent + begin * shape_.expert_features;
        run_experts(begin, rows, z, z, nullptr);
      } else {
        float* out = y + begin * shape_.hidden;
        run_experts(begin, rows, step_.x + begin * shape_.hidden, out, weights_.shared ? out : nullptr);
      }
    }
    if (latent != nullptr) leave_latent(input, latent, y);
  }

 private:
  void choose(QuantizedInput& input) {
    auto* logits = scratch_.logits_.as<float>();
    weights_.router.apply(input, logits, shape_.router.experts, pool_);
    kernels::route(shape_.router, weights_.correction.empty() ? nullptr : weights_.correction.data(), logits,
                   shape_.router.experts, step_.rows, scratch_.ids_.as<int32_t>(), scratch_.weights_.as<float>(),
                   step_.isa, pool_);
  }

  // x, y: rows [begin, begin + rows), expert_features wide; y = combined (+ shared, which may be y).
  void run_experts(int64_t begin, int64_t rows, const float* x, float* y, const float* shared) {
    const int slots = shape_.router.top_k;
    scratch_.plan_.sort(scratch_.ids_.as<int32_t>() + begin * slots, rows, slots);
    auto* sorted = scratch_.sorted_.as<float>();
    auto* gate = scratch_.gate_.as<float>();
    auto* up = scratch_.up_.as<float>();
    gather(x, sorted);
    multiply(weights_.gate, sorted, gate);
    multiply(weights_.up, sorted, up);
    shape_.activation.apply(gate, up, scratch_.plan_.pairs(), shape_.intermediate, step_.isa, pool_);
    multiply(weights_.down, gate, sorted);
    kernels::combine_slots({.outputs = sorted,
                            .outputs_stride = shape_.expert_features,
                            .places = scratch_.plan_.places(),
                            .weights = scratch_.weights_.as<float>() + begin * slots,
                            .slots = slots,
                            .shared = shared,
                            .shared_stride = shape_.expert_features,
                            .y = y,
                            .y_stride = shape_.expert_features,
                            .rows = rows,
                            .features = shape_.expert_features,
                            .isa = step_.isa},
                           pool_);
  }

  void gather(const float* x, float* sorted) {
    const int64_t width = shape_.expert_features;
    const int32_t* rows = scratch_.plan_.source_rows();
    quantized_ = nullptr;
    pool_.parallel_for(scratch_.plan_.pairs(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::copy_n(x + rows[i] * width, width, sorted + i * width);
    });
  }

  // out[i] = W[expert of pair i] x[i]. Two lists of one format over the same x share its quantised rows.
  void multiply(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out);
  void multiply_static(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out);

  void leave_latent(QuantizedInput& input, float* latent, float* y) {
    const int64_t width = shape_.expert_features;
    if (!weights_.latent_norm.empty()) {
      kernels::rms_norm(latent, width, weights_.latent_norm.data(), shape_.norm_eps, latent, width, step_.rows, width,
                        step_.isa, pool_);
    }
    input.set(latent, step_.rows, width);
    float* hidden = weights_.shared ? scratch_.hidden_.as<float>() : y;
    weights_.latent_up->apply(input, hidden, shape_.hidden, pool_);
    if (weights_.shared) {
      kernels::add(hidden, shape_.hidden, y, shape_.hidden, step_.rows, shape_.hidden, step_.isa, pool_);
    }
  }

  const MoeWeights& weights_;
  const MoeStep& step_;
  const MoeShape& shape_;
  MoeScratch& scratch_;
  ComputePool& pool_;
  const float* quantized_ = nullptr;  // what scratch_.activations_ holds
};

void MoeForward::multiply(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out) {
  const kernels::MatmulSpec& spec = experts[0].spec();
  const kernels::ActivationFormat format = kernels::activation_format(spec.dtype);
  const std::vector<int64_t>& begins = scratch_.plan_.begins();
  if (format == kernels::ActivationFormat::kInt8Static) {
    multiply_static(experts, x, out);
    return;
  }
  kernels::ActivationBuffer& activations = scratch_.activations_;
  if (quantized_ != x || activations.format() != format) {
    activations.quantize(x, spec.in_features, scratch_.plan_.pairs(), spec.in_features, format, spec.isa, pool_);
    quantized_ = x;
  }
  scratch_.groups_.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    if (begins[e] == begins[e + 1]) continue;
    scratch_.groups_.push_back({.w = &experts[e], .row_begin = begins[e], .row_count = begins[e + 1] - begins[e]});
  }
  kernels::matmul_groups(scratch_.groups_, activations, out, spec.out_features, pool_);
}

// Each expert has an activation scale of its own.
void MoeForward::multiply_static(const std::vector<kernels::PackedMatrix>& experts, const float* x, float* out) {
  const std::vector<int64_t>& begins = scratch_.plan_.begins();
  for (size_t e = 0; e < experts.size(); ++e) {
    const kernels::MatmulSpec& spec = experts[e].spec();
    const int64_t begin = begins[e], rows = begins[e + 1] - begin;
    if (rows == 0) continue;
    scratch_.activations_.quantize(x + begin * spec.in_features, spec.in_features, rows, spec.in_features,
                                   kernels::ActivationFormat::kInt8Static, spec.isa, pool_, experts[e].static_quant());
    kernels::matmul(experts[e], scratch_.activations_, nullptr, out + begin * spec.out_features, spec.out_features,
                    pool_);
  }
  quantized_ = nullptr;
}

void moe_forward(const MoeWeights& weights, const MoeStep& step, MoeScratch& scratch, QuantizedInput& input, float* y,
                 ComputePool& pool) {
  const auto experts = static_cast<size_t>(step.shape.router.experts);
  BATON_CHECK(weights.gate.size() == experts && weights.up.size() == experts && weights.down.size() == experts,
              "experts={} {} {} of {}", weights.gate.size(), weights.up.size(), weights.down.size(), experts);
  MoeForward(weights, step, scratch, pool).run(input, y);
}

}  // namespace baton::models
