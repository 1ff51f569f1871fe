// Every tensor of a random checkpoint, in the published layout: name, format, shape, and how its values are drawn.
//
// Scales keep a random model lively: logits with a deviation of about 2.5, attention scores of 1.5 to 2, router scores
// apart without saturation, recurrent decays between a few and a few hundred tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "weights/make_checkpoint/checkpoint_sizes.h"

namespace baton::weights {

struct PlannedTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kBF16;
  std::vector<int64_t> shape;
  float deviation = 0;  // element i = mean + deviation * random_normal(key of name, i)
  float mean = 0;
};

// `dtype` (F32, F16 or BF16) is that of the weights; what the published checkpoints keep in F32 stays so.
// sizes: checked. In the order in which they are written.
std::vector<PlannedTensor> plan_tensors(CheckpointArch arch, const CheckpointSizes& sizes, tensor::DType dtype);

}  // namespace baton::weights
