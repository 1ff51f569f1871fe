// One weight matrix of a checkpoint, whatever tensors it is made of, read in the row layout that kernels take.
//
// tensor/dtype.h says what a row is: plain elements, or blocks of a scale and its codes. Checkpoints keep codes and
// scales apart; read_rows brings them together, about one pass of memcpy. The parts stay mapped: nothing is copied
// before rows are read. Never changes after weight_formats.h has made it; any thread may read rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace baton::weights {

// W8A8: activations are quantised with the checkpoint's own numbers.
struct StaticInput {
  float input_scale = 1;
  int input_offset = 0;
  std::vector<int32_t> quant_bias;  // [rows], added to the integer sums
};

class MatrixSource {
 public:
  std::string name;        // "model.layers.0.self_attn.q_proj.weight", also where no tensor has this very name
  std::string scale_name;  // the tensor of its scales; empty where codes carry their own
  tensor::DType dtype = tensor::DType::kF32;
  int64_t rows = 0;     // out
  int64_t columns = 0;  // in
  // Channel formats: [rows]; for kInt8Static its deq_scale.
  std::vector<float> channel_scales;
  std::optional<StaticInput> static_input;  // kInt8Static
  // Every tensor that belongs to it, those that aren't read too.
  std::vector<const TensorEntry*> parts;

  int64_t row_bytes() const { return tensor::dtype_bytes(dtype, columns); }
  // Rows as the file has them, or null where they must be put together.
  const std::byte* stored_rows(int64_t begin) const;
  // out: count * row_bytes() bytes.
  void read_rows(int64_t begin, int64_t count, std::byte* out) const;
  // out: [count, columns] fp32. kDataLoss names the row where a quantised form gives a value that is no number.
  Result<void> dequantize_rows(int64_t begin, int64_t count, float* out) const;

  // How rows lie in the file.
  enum class Layout : uint8_t {
    kRows,         // as kernels take them
    kBlocks,       // codes and scales in two tensors, a scale for `rows_per_scale` rows
    kSplitHalves,  // GGUF's MXFP4: blocks whose byte i holds codes i (low nibble) and i + 16
    kOutputPairs   // two int4 of neighbouring rows in a byte, the even row in the low nibble
  };
  Layout layout = Layout::kRows;
  const std::byte* codes = nullptr;  // rows of code_row_bytes
  int64_t code_row_bytes = 0;
  const std::byte* scales = nullptr;  // kBlocks: rows of scale_row_bytes
  int64_t scale_row_bytes = 0;
  int64_t scale_bytes = 0;  // of one scale
  int64_t rows_per_scale = 1;

 private:
  void put_blocks(int64_t row, std::byte* out) const;
  void put_split_halves(int64_t row, std::byte* out) const;
  void put_output_pair(int64_t row, std::byte* out) const;
  void scale_channel(int64_t row, const std::byte* codes_of_row, float* out) const;
};

}  // namespace baton::weights
