// Multi-head latent attention of one layer, in absorbed form for every token, prompt or generated (rule 4): the cache
// holds one latent and one rotary key per token, shared by all heads.
//
//   cq = RMSNorm(q_a x);  q = q_b cq = [heads][nope | rope]     (without q_lora: q = q_b x)
//   [c | kr] = kv_a x;    latent = RMSNorm(c);  rotary parts of q and kr are rotated (not with NoPE)
//   per head h: qa = W_UK[h]^T q_nope;  score = (qa . latent + q_rope . kr) * scale;  l = sum p latent;  o_h = W_UV[h]
//   l y = o_proj [o_h],  with an output gate o_h *= sigmoid(g_proj x) before
//
// Sketch, DeepSeek V3 at one row: W_UK and W_UV are 2 x 128 heads x 128 x 512 (33 MB in bf16, read once per step), the
// attention reads 1152 B of cache per token once for all heads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/kv_view.h"
#include "models/deepseek/deepseek_config.h"
#include "models/layers/context_lanes.h"
#include "models/layers/indexer.h"
#include "models/layers/linear.h"
#include "models/layers/team.h"
#include "tensor/buffer.h"

namespace baton::models {

// q_b, the heads' matrices and the gate: of the rank's heads. q_a, kv_a and o: some of their outputs.
struct MlaWeights {
  std::optional<Linear> q_a;
  std::vector<float> q_a_norm;
  Linear q_b;
  Linear kv_a;
  std::vector<float> kv_a_norm;
  std::vector<kernels::PackedMatrix> key_up;    // W_UK^T of each head: [kv_lora, nope]
  std::vector<kernels::PackedMatrix> value_up;  // W_UV of each head: [value, kv_lora]
  std::optional<Linear> gate;
  Linear o;
};

struct MlaStep {
  const MlaConfig& config;
  parallel::Share heads;               // the rank's
  const int32_t* positions = nullptr;  // [rows]
  const float* cos_sin = nullptr;      // rope_table; unused without rotary positions
  std::span<const kernels::SequenceSlice> slices;
  kernels::TokenCacheView cache;
  // Sparse attention: this layer's own indexer runs and fills the selection; a shared one is read as it is.
  IndexerRole indexer_role = IndexerRole::kNone;
  const IndexerWeights* indexer = nullptr;
  const IndexerConfig* indexer_config = nullptr;
  kernels::TokenCacheView index_cache;
  IndexSelection* selection = nullptr;
  parallel::RankPlace place;
  tensor::Isa isa = tensor::Isa::kPortable;
};

// Shared by all layers; sized once.
class MlaScratch {
 public:
  // The same call on each rank of the team; heads: how many this rank has.
  static Result<MlaScratch> allocate(const MlaConfig& config, int64_t heads, int64_t max_rows, int threads,
                                     parallel::Group group = {}, const parallel::RankPlace& place = {});

 private:
  friend class MlaForward;

  QuantizedInput inner_;             // of cq, then of the heads' outputs
  kernels::ActivationBuffer heads_;  // of one matrix per head
  // [rows, ...], of the team:
  TeamRows cq_, kv_;                           // q_lora; latent | rotary key
  std::shared_ptr<tensor::Buffer> heads_out_;  // all heads x value
  // of the rank's heads:
  tensor::Buffer q_, nope_;  // heads x (nope | rope); heads x nope
  tensor::Buffer absorbed_;  // heads x (rank | rope)
  tensor::Buffer latents_;   // heads x rank
  tensor::Buffer gate_;      // heads x value
  tensor::Buffer attention_;
  ContextLanes lanes_;
};

// x: the layer's normed input, already set in `input`; y: [rows, hidden] of the team, of which all columns are there on
// return. Writes the step's latents (and index keys).
void mla_forward(const MlaWeights& weights, const MlaStep& step, TeamStep& team, MlaScratch& scratch,
                 QuantizedInput& input, float* y, int64_t hidden, ComputePool& pool);

}  // namespace baton::models
