// The vision tower and projector that the multi-modal classes carry. A text model leaves them alone; a loader must too.
// Kimi K2.5's layers have biases and LayerNorms, K3's neither.
#include <fmt/format.h>

#include "weights/make_checkpoint/tensor_planner.h"

namespace baton::weights {
namespace {

constexpr int64_t kPatch = 14, kColours = 3, kPositions = 64, kMerged = 4;  // of 2 x 2 patches

}  // namespace

void TensorPlanner::vision() {
  const int64_t width = s_.vision_hidden;
  add("vision_tower.patch_embed.proj.weight", dtype_, {width, kColours, kPatch, kPatch}, 0.04f);
  if (!is_k3_kind(arch_)) add("vision_tower.patch_embed.proj.bias", dtype_, {width}, 0.1f);
  add("vision_tower.patch_embed.pos_emb.weight", dtype_, {kPositions, kPositions, width}, 0.2f);
  for (int block = 0; block < s_.vision_layers; ++block) {
    vision_block(fmt::format("vision_tower.encoder.blocks.{}.", block));
  }
  vision_norm("vision_tower.encoder.final_layernorm", width);
  projector();
}

void TensorPlanner::vision_block(const std::string& prefix) {
  const int64_t width = s_.vision_hidden;
  vision_norm(prefix + "norm0", width);
  vision_norm(prefix + "norm1", width);
  vision_linear(prefix + "wqkv", int64_t{3} * s_.vision_qkv, width);
  vision_linear(prefix + "wo", width, s_.vision_qkv);
  vision_linear(prefix + "mlp.fc0", s_.vision_intermediate, width);
  vision_linear(prefix + "mlp.fc1", width, s_.vision_intermediate);
}

void TensorPlanner::projector() {
  const int64_t merged = kMerged * s_.vision_hidden;
  if (!is_k3_kind(arch_)) vision_norm("mm_projector.pre_norm", s_.vision_hidden);
  vision_linear("mm_projector.proj.0", merged, merged);
  vision_linear("mm_projector.proj.2", s_.hidden, merged);
  if (is_k3_kind(arch_)) vision_norm("mm_projector.post_norm", s_.hidden);
}

void TensorPlanner::vision_linear(const std::string& name, int64_t out, int64_t in) {
  linear(name, out, in);
  if (!is_k3_kind(arch_)) add(name + ".bias", dtype_, {out}, 0.1f);
}

void TensorPlanner::vision_norm(const std::string& name, int64_t size) {
  norm(name, size);
  if (!is_k3_kind(arch_)) add(name + ".bias", dtype_, {size}, 0.1f);
}

}  // namespace baton::weights
