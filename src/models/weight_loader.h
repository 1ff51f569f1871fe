// Turns a checkpoint's tensors into what kernels read: matrices packed once, small vectors as fp32. The pages of a
// tensor are given back as soon as it is packed, so that weights are never held twice. Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace baton::models {

class WeightLoader {
 public:
  WeightLoader(const weights::Checkpoint& checkpoint, const LoadOptions& options, ComputePool& pool);

  // A matrix [out, in] whose K is never split over ranks.
  Result<kernels::PackedMatrix> matrix(const std::string& name);
  // A matrix that ranks may split over K: summed by the canonical tree. `unit` inputs belong together (the head
  // dimension of o_proj; 1 otherwise); it is made a multiple of the format's groups.
  Result<kernels::PackedMatrix> tree_matrix(const std::string& name, int64_t unit);
  // f32, f16 or bf16, as fp32.
  Result<std::vector<float>> vector(const std::string& name);
  // The same of a tensor of any shape, row by row.
  Result<std::vector<float>> values(const std::string& name);
  // A small matrix [out, in] that is multiplied in fp32 whatever it is stored as: a router, whose choices depend on the
  // last bits of its scores.
  Result<kernels::PackedMatrix> float_matrix(const std::string& name);

  // For a matrix that is taken apart: rows [begin, begin + count) as fp32, the plain format that its parts keep (f32
  // for f32; else bf16), parts packed from fp32, and a last word that the tensor is not needed any more.
  Result<std::vector<float>> dense_rows(const std::string& name, int64_t begin, int64_t count);
  Result<tensor::DType> dense_dtype(const std::string& name) const;
  Result<kernels::PackedMatrix> pack_floats(const std::string& name, std::span<const float> values,
                                            int64_t out_features, int64_t in_features, tensor::DType dtype);
  Result<void> used(const std::string& name);

  int64_t bytes_held() const { return bytes_held_; }

 private:
  Result<const weights::TensorEntry*> find(const std::string& name) const;
  Result<kernels::PackedMatrix> pack(const std::string& name, kernels::MatmulSpec spec);
  void finished(const weights::TensorEntry& tensor);

  const weights::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  ComputePool& pool_;
  int64_t bytes_total_ = 0;
  int64_t bytes_done_ = 0;
  int64_t bytes_held_ = 0;
};

}  // namespace baton::models
