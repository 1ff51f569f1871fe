// The planner that the tables of attention (tensor_plan_attention.cc) and of everything else (tensor_plan.cc) share.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "weights/make_checkpoint/tensor_plan.h"

namespace baton::weights {

// Yarn's factor on attention scores, squared (models of the DeepSeek kind with mscale = mscale_all_dim = 1).
double yarn_score_factor(const CheckpointSizes& sizes);

class TensorPlanner {
 public:
  TensorPlanner(CheckpointArch arch, const CheckpointSizes& sizes, tensor::DType dtype)
      : arch_(arch), s_(sizes), dtype_(dtype) {}

  std::vector<PlannedTensor> plan();

 private:
  // tensor_plan.cc
  void decoder_layer(int layer);
  void mtp_layer(int layer);
  void feed_forward(const std::string& prefix, int layer);
  void mlp(const std::string& prefix, int64_t width, float down_gain);
  void experts(const std::string& prefix);
  void attn_res(const std::string& projection, const std::string& norm_name);

  // tensor_plan_vision.cc
  void vision();
  void vision_block(const std::string& prefix);
  void projector();
  void vision_linear(const std::string& name, int64_t out, int64_t in);
  void vision_norm(const std::string& name, int64_t size);

  // tensor_plan_attention.cc; prefix ends in "self_attn."
  void llama_attention(const std::string& prefix);
  void mla(const std::string& prefix);
  void indexer(const std::string& prefix);
  void kda(const std::string& prefix);

  void add(std::string name, tensor::DType dtype, std::vector<int64_t> shape, float deviation, float mean = 0) {
    tensors_.push_back({std::move(name), dtype, std::move(shape), deviation, mean});
  }
  // Outputs of deviation `gain` from inputs of deviation 1.
  void linear(const std::string& name, int64_t out, int64_t in, float gain = 1) {
    add(name + ".weight", dtype_, {out, in}, gain / std::sqrt(static_cast<float>(in)));
  }
  void norm(const std::string& name, int64_t size) { norm(name, size, dtype_); }
  void norm(const std::string& name, int64_t size, tensor::DType dtype) {
    add(name + ".weight", dtype, {size}, 0.1f, 1.0f);
  }

  const CheckpointArch arch_;
  const CheckpointSizes& s_;
  const tensor::DType dtype_;
  std::string model_;  // "language_model.model." or "model."
  std::vector<PlannedTensor> tensors_;
};

}  // namespace baton::weights
