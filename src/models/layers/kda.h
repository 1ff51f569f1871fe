// Kimi Delta Attention of one layer: projections, the recurrence over the sequence's state, gated norm, output
// projection. Formulas: kernels/kda.h.
//
// Sketch, Kimi K3 at one row: 0.45 GB of projections in bf16 and 6.7 MB of state read, 6.7 MB written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/kda.h"
#include "models/layers/linear.h"
#include "models/layers/team.h"
#include "tensor/buffer.h"

namespace baton::models {

struct KdaLayerShape {
  kernels::KdaShape heads;  // those of this rank
  int total_heads = 0;      // of the layer; 0: the same
  int first_head = 0;       // of this rank's
  kernels::KdaDecay decay = kernels::KdaDecay::kSoftplus;
  float lower_bound = 0;   // kBoundedSigmoid
  float norm_eps = 1e-5f;  // of the heads' outputs
  float unit_eps = 1e-6f;  // of the unit norms of q and k
  int64_t decay_rank = 0;  // outputs of f_a
  int64_t gate_rank = 0;   // outputs of gate_a; 0: full rank

  // Of all heads' outputs.
  int64_t total_values() const { return int64_t{total_heads != 0 ? total_heads : heads.heads} * heads.value_dim; }
  int64_t state_head_bytes() const {
    return kernels::kda_state_head_bytes(heads.key_dim, heads.value_dim, heads.conv_width);
  }
};

// Of the rank's heads; f_a, gate_a and o: some of their outputs.
struct KdaWeights {
  Linear q, k, v;
  Linear f_a, f_b;               // the decay's input: f_b(f_a x)
  Linear beta;                   // b_proj
  std::optional<Linear> gate_a;  // low-rank gates alone
  Linear gate;                   // g_proj (full rank), or g_b_proj over gate_a
  Linear o;
  // Of the convolutions, [width, features]: kernels::transpose_conv of the checkpoint's [features, 1, width].
  std::vector<float> q_conv, k_conv, v_conv;
  std::vector<float> dt_bias;  // [heads * key_dim]
  std::vector<float> a_log;    // [heads] or longer: checkpoints pad it
  std::vector<float> o_norm;   // [value_dim]
};

// Shared by all layers; sized once.
class KdaScratch {
 public:
  // The same call on each rank of the team. kInvalidArgument for a shape that the kernel can't hold.
  static Result<KdaScratch> allocate(const KdaLayerShape& shape, int64_t max_rows, parallel::Group group = {});
  // Of the rank's heads:
  float* qkv() { return qkv_.as<float>(); }      // [rows, q | k | v]
  float* decay() { return decay_.as<float>(); }  // [rows, heads * key_dim]
  float* gate() { return gate_.as<float>(); }    // [rows, heads * value_dim]
  float* beta() { return beta_.as<float>(); }    // [rows, heads]
  // Of the team:
  float* decay_low() { return decay_low_->as<float>(); }  // [rows, decay_rank]
  float* gate_low() { return gate_low_->as<float>(); }    // [rows, gate_rank]
  float* heads_out() { return heads_out_->as<float>(); }  // [rows, all heads * value_dim]

 private:
  tensor::Buffer qkv_, decay_, gate_, beta_;
  std::shared_ptr<tensor::Buffer> decay_low_, gate_low_, heads_out_;
};

struct KdaStep {
  const KdaLayerShape& shape;
  std::span<const kernels::SequenceSlice> slices;  // each with its state slot
  kernels::StateView state;                        // of this layer, the rank's heads
  tensor::Isa isa = tensor::Isa::kPortable;
};

// x: the layer's normed input, already set in `input`; y: [rows, hidden] of the team, of which all columns are there on
// return. Moves the slices' states on.
void kda_forward(const KdaWeights& weights, const KdaStep& step, TeamStep& team, KdaScratch& scratch,
                 QuantizedInput& input, float* y, int64_t hidden, ComputePool& pool);

}  // namespace baton::models
