// Mixture of experts of one layer: router, chosen experts, shared experts; for Kimi K3 in a latent space.
//
//   y = sum over slots of w_slot E_slot(x), by a tree, then + shared(x)                       (kernels/router.h,
//   mixing.h) latent: z = latent_down x; m = the same sum over E(z); y = latent_up RMSNorm(m), then + shared(x)
//
// Rows are sorted by expert, so that every chosen expert is read once; a row's result does not depend on which rows
// share the batch, nor on where a large batch is cut into passes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/router.h"
#include "models/layers/activation.h"
#include "models/layers/linear.h"
#include "models/layers/mlp.h"
#include "models/layers/moe_replicas.h"
#include "models/layers/team.h"
#include "tensor/buffer.h"

namespace baton::models {

struct MoeShape {
  kernels::RouterSpec router;
  int64_t hidden = 0;
  int64_t expert_features = 0;      // in and out of an expert: hidden, or the latent's
  int64_t intermediate = 0;         // of an expert
  int64_t shared_intermediate = 0;  // 0: no shared experts
  GatedActivation activation;       // of experts and shared experts
  float norm_eps = 1e-5f;           // of latent_norm
};

// A rank holds some outputs of the router, the shared experts and the latent's matrices, and whole experts.
struct MoeWeights {
  Linear router;                  // [experts, hidden]; logits in fp32
  std::vector<float> correction;  // [experts], or empty
  // One matrix per expert that the rank holds; those of one list have one shape and format.
  std::vector<kernels::PackedMatrix> gate, up, down;
  int first_expert = 0;  // whose they are: experts [first_expert, first_expert + gate.size())
  std::optional<MlpWeights> shared;
  std::optional<Linear> latent_down, latent_up;
  std::vector<float> latent_norm;  // [expert_features], or empty
};

// Which rows of a pass each expert serves: a counting sort of its (row, slot) pairs, ascending by expert, then by row.
class ExpertPlan {
 public:
  ExpertPlan() = default;
  ExpertPlan(int experts, int64_t max_pairs);
  // ids: [rows, slots], each below experts.
  void sort(const int32_t* ids, int64_t rows, int slots);
  // The same of any pairs: pair i is of expert experts[i] and of row rows[i], and stands at places()[i].
  void sort_pairs(const int32_t* experts, const int32_t* rows, int64_t pairs);

  int64_t pairs() const { return pairs_; }
  // Sorted pair i is of row source_rows()[i]; pair (row, slot) stands at places()[row * slots + slot].
  const int32_t* source_rows() const { return source_rows_.data(); }
  const int32_t* places() const { return places_.data(); }
  // Of each expert: pairs [begins()[e], begins()[e + 1]).
  const std::vector<int64_t>& begins() const { return begins_; }

 private:
  template <typename RowOf>
  void sort_by(const int32_t* experts, int64_t pairs, RowOf row_of);
  int64_t pairs_ = 0;
  std::vector<int64_t> begins_, next_;
  std::vector<int32_t> source_rows_, places_;
};

// Shared by all layers; sized once. Rows beyond pass_rows are served in several passes, each of which reads the experts
// it needs: 4 bytes * pass_rows * top_k * expert_features are held by the team, and by each rank what its part of the
// pairs needs: the sorted rows, 2 * intermediate of each, and their quantised form.
class MoeScratch {
 public:
  static constexpr int64_t kPassRows = 1024;
  // The same call on each rank of the team. kInvalidArgument for a router that contradicts itself.
  static Result<MoeScratch> allocate(const MoeShape& shape, int64_t max_rows, int64_t pass_rows = kPassRows,
                                     parallel::Group group = {}, const MoeReplicaSetup& replicas = {});

 private:
  friend class MoeForward;
  float* outputs() { return outputs_ ? outputs_->as<float>() : sorted_.as<float>(); }

  int64_t pass_rows_ = 0, chunk_pairs_ = 0;
  ExpertPlan plan_;
  std::vector<kernels::MatmulGroup> groups_;
  kernels::ActivationBuffer activations_;    // of the sorted rows of a chunk
  TeamRows logits_, ids_, weights_;          // [rows, experts], [rows, top_k]
  TeamRows latent_;                          // [rows, expert_features]: latent alone
  tensor::Buffer hidden_;                    // [rows, outputs of latent_up held]
  tensor::Buffer sorted_, gate_, up_;        // [pairs of a chunk, expert_features], [.., intermediate]
  std::shared_ptr<tensor::Buffer> outputs_;  // [pairs of a pass, expert_features], of the team; with one rank: sorted_
  std::optional<MlpScratch> shared_;
  std::optional<MoeReplicas> replicas_;
  std::vector<int32_t> straight_;  // 0, 1, ...: places of what came back from replicas
};

struct MoeStep {
  const MoeShape& shape;
  const float* x = nullptr;  // [rows, hidden], dense: the layer's normed input, also set in `input`
  tensor::Isa isa = tensor::Isa::kPortable;
};

// y: [rows, hidden] of the team, not x, of which all columns are there on return. With experts over replicas there may
// be no rows: the layer's part for the others' rows is done.
void moe_forward(const MoeWeights& weights, const MoeStep& step, TeamStep& team, MoeScratch& scratch,
                 QuantizedInput& input, float* y, ComputePool& pool);

}  // namespace baton::models
