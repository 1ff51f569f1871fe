// Turns a checkpoint's tensors into what kernels read: matrices packed once, small vectors as fp32. The pages of a
// tensor are given back as soon as it is packed, so that weights are never held twice. Used by one thread.
//
// A matrix is asked for by the name that its plain form has ("....weight"), in whatever form the checkpoint keeps it
// (weights/weight_formats.h).
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
#include "weights/weight_formats.h"

namespace baton::models {

// A matrix, or rows of one.
struct MatrixPart {
  std::string name;
  int64_t begin = 0;
  std::optional<int64_t> count = std::nullopt;  // absent: all rows
};

class WeightLoader {
 public:
  WeightLoader(const weights::Checkpoint& checkpoint, const LoadOptions& options, ComputePool& pool);

  // Of rows there may be none below: the matrix is empty then, and knows its input's format alone.

  // A matrix [out, in] whose K is never split over ranks.
  Result<kernels::PackedMatrix> matrix(const std::string& name);
  // A matrix that ranks may split over K: summed by the canonical tree. `unit` inputs belong together (the head
  // dimension of o_proj; 1 otherwise); it is made a multiple of the format's groups.
  Result<kernels::PackedMatrix> tree_matrix(const std::string& name, int64_t unit);
  // The same of rows [begin, begin + count) alone: one expert of a GGUF tensor [experts, out, in], whose rows are
  // counted through, or one head of a projection.
  Result<kernels::PackedMatrix> matrix_rows(const std::string& name, int64_t begin, int64_t count);
  Result<kernels::PackedMatrix> tree_matrix_rows(const std::string& name, int64_t unit, int64_t begin, int64_t count);
  // Matrices of one shape and format in one allocation: a layer's experts. Their K is never split over ranks.
  Result<std::vector<kernels::PackedMatrix>> matrices(std::span<const MatrixPart> parts);
  // Rows of a matrix in any form, as fp32: [count, in]. A value that is not finite is an error, here and below.
  Result<std::vector<float>> dense_rows(const std::string& name, int64_t begin, int64_t count);
  // f32, f16 or bf16 of any shape, flattened, as fp32.
  Result<std::vector<float>> vector(const std::string& name);
  // Rows of a small matrix [out, in] that is multiplied in fp32 whatever it is stored as: a router, whose choices
  // depend on the last bits of its scores.
  Result<kernels::PackedMatrix> float_matrix_rows(const std::string& name, int64_t begin, int64_t count);
  // The same as matrix_rows(), each value seen to be finite first: for an indexer's, whose products only choose.
  Result<kernels::PackedMatrix> finite_matrix_rows(const std::string& name, int64_t begin, int64_t count);
  // For a matrix that is taken apart by dense_rows: the plain format that its parts keep (f32 for f32; else bf16), room
  // for `count` parts in one allocation, and a part's values from fp32.
  Result<tensor::DType> dense_dtype(const std::string& name);
  Result<std::vector<kernels::PackedMatrix>> reserve_floats(const std::string& name, int64_t count,
                                                            int64_t out_features, int64_t in_features,
                                                            tensor::DType dtype);
  Result<void> fill_floats(std::span<const float> values, kernels::PackedMatrix& packed);
  // Rows and columns of a matrix, whatever its form.
  Result<std::pair<int64_t, int64_t>> matrix_shape(const std::string& name);

  int64_t bytes_held() const { return bytes_held_; }
  // A rank has read its share: progress is at its end, whatever the others read.
  void complete() {
    if (bytes_done_ < bytes_total_) finished(bytes_total_);
  }

 private:
  struct Rows {
    int64_t begin = 0;
    std::optional<int64_t> count;  // none: all
  };
  Result<const weights::WeightFormats*> formats();
  Result<weights::MatrixSource> source(const std::string& name, weights::Values values);
  kernels::MatmulSpec spec_of(const weights::MatrixSource& from, int64_t rows, kernels::MatmulSpec spec) const;
  std::unexpected<Status> in_context(const weights::MatrixSource& from, const Status& status) const;
  Result<void> fill(const weights::MatrixSource& from, int64_t begin, kernels::PackedMatrix& packed);
  Result<kernels::PackedMatrix> pack_floats(const std::string& name, std::span<const float> values,
                                            int64_t out_features, int64_t in_features, tensor::DType dtype);
  Result<kernels::PackedMatrix> pack(const std::string& name, Rows rows, kernels::MatmulSpec spec);
  void pack_rows(const weights::MatrixSource& source, int64_t begin, kernels::PackedMatrix& packed);
  void finished(const weights::MatrixSource& source, int64_t begin, int64_t count);
  void finished(int64_t bytes);

  const weights::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  ComputePool& pool_;
  std::optional<weights::WeightFormats> formats_;
  kernels::MatrixMemory memory_;
  int64_t bytes_total_ = 0;
  int64_t bytes_done_ = 0;
  int64_t bytes_held_ = 0;
};

}  // namespace baton::models
