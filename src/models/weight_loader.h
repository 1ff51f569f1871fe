// Turns a checkpoint's tensors into what kernels read: matrices packed once, small vectors as fp32. The pages of a
// tensor are given back as soon as it is packed, so that weights are never held twice. Used by one thread.
//
// A matrix is asked for by the name that its plain form has ("....weight"), in whatever form the checkpoint keeps it
// (weights/weight_formats.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "weights/checkpoint.h"
#include "weights/weight_formats.h"

namespace baton::models {

class WeightLoader {
 public:
  WeightLoader(const weights::Checkpoint& checkpoint, const LoadOptions& options, ComputePool& pool);

  // A matrix [out, in] whose K is never split over ranks.
  Result<kernels::PackedMatrix> matrix(const std::string& name);
  // A matrix that ranks may split over K: summed by the canonical tree. `unit` inputs belong together (the head
  // dimension of o_proj; 1 otherwise); it is made a multiple of the format's groups.
  Result<kernels::PackedMatrix> tree_matrix(const std::string& name, int64_t unit);
  // The same of rows [begin, begin + count) alone: one expert of a GGUF tensor [experts, out, in], whose rows are
  // counted through, or one head of a projection.
  Result<kernels::PackedMatrix> matrix_rows(const std::string& name, int64_t begin, int64_t count);
  Result<kernels::PackedMatrix> tree_matrix_rows(const std::string& name, int64_t unit, int64_t begin, int64_t count);
  // Rows of a matrix in any form, as fp32: [count, in].
  Result<std::vector<float>> dense_rows(const std::string& name, int64_t begin, int64_t count);
  // f32, f16 or bf16 of any shape, flattened, as fp32.
  Result<std::vector<float>> vector(const std::string& name);
  // Rows and columns of a matrix, whatever its form.
  Result<std::pair<int64_t, int64_t>> matrix_shape(const std::string& name);

  int64_t bytes_held() const { return bytes_held_; }

 private:
  struct Rows {
    int64_t begin = 0;
    std::optional<int64_t> count;  // none: all
  };
  Result<const weights::WeightFormats*> formats();
  Result<weights::MatrixSource> source(const std::string& name, weights::Values values);
  Result<kernels::PackedMatrix> pack(const std::string& name, Rows rows, kernels::MatmulSpec spec);
  void pack_rows(const weights::MatrixSource& source, int64_t begin, kernels::PackedMatrix& packed);
  void finished(const weights::MatrixSource& source, int64_t begin, int64_t count);
  void finished(int64_t bytes);

  const weights::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  ComputePool& pool_;
  std::optional<weights::WeightFormats> formats_;
  int64_t bytes_total_ = 0;
  int64_t bytes_done_ = 0;
  int64_t bytes_held_ = 0;
};

}  // namespace baton::models
