// Fills the shards of a quantised checkpoint: reads rows of the input, encodes them, writes every part in its place.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/quantize/matrix_form.h"
#include "weights/quantize/quantize_checkpoint.h"
#include "weights/shard_file.h"

namespace baton::weights {

// A tensor of the input and what becomes of it.
struct QuantizedTensor {
  struct Part {
    TensorDecl decl;
    int rows_per_entry = 1;
  };
  const TensorEntry* entry = nullptr;
  MatrixForm form = MatrixForm::kKeep;
  InputQuant input;
  std::vector<Part> parts;  // one if it is kept
};
// Fills parts and input from entry and form. kInvalidArgument if options.inputs lacks a static matrix; kUnimplemented
// for an input that is to be quantised and isn't f32, f16 or bf16.
Result<void> describe(const QuantizeOptions& options, QuantizedTensor& tensor);

// Used by one thread, which the pool's threads help.
class ShardQuantizer {
 public:
  // first_decl: of each tensor, the index of its first part among all parts; one more at the end.
  ShardQuantizer(const Checkpoint& checkpoint, const std::vector<QuantizedTensor>& tensors,
                 const std::vector<size_t>& first_decl, const QuantizeOptions& options, int64_t bytes_total)
      : checkpoint_(checkpoint),
        tensors_(tensors),
        first_decl_(first_decl),
        options_(options),
        bytes_total_(bytes_total) {}

  Result<void> write(const std::string& path, const Shard& shard, ComputePool& pool);
  void skip(const Shard& shard) { bytes_done_ += shard.layout.file_bytes; }

 private:
  struct Piece {
    size_t tensor;
    int64_t begin, count;  // rows of a matrix, bytes of a kept tensor
  };
  std::vector<Piece> split(const Shard& shard) const;
  Result<int64_t> write_piece(const ShardFile& file, const Shard& shard, const Piece& piece) const;
  Result<int64_t> write_rows(const ShardFile& file, const Shard& shard, const Piece& piece) const;

  const Checkpoint& checkpoint_;
  const std::vector<QuantizedTensor>& tensors_;
  const std::vector<size_t>& first_decl_;
  const QuantizeOptions& options_;
  const int64_t bytes_total_;
  std::atomic<int64_t> bytes_done_{0};
};

}  // namespace baton::weights
