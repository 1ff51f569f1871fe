// The forms that `baton quantize` can give a matrix: which tensors each consists of, and how fp32 rows become them.
//
// One pass, the scale of a group from its largest magnitude, codes rounded to nearest (ties to even): what the
// published tools do without calibration. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace baton::weights {

enum class MatrixForm : uint8_t {
  kKeep,         // as it is
  kFp8Block,     // .weight e4m3, .weight_scale_inv: largest magnitude of 128 x 128 is 448
  kInt4Group32,  // .weight_packed, .weight_scale, .weight_shape: scale = largest magnitude / 7.5, in bf16
  kMxfp4Packed,  // .weight_packed, .weight_scale: 2^n under which the largest magnitude is below 7
  kW8A8,         // ModelSlim's, from here on: int8 with a scale a row; activations by a given scale and offset
  kW8A8Dynamic,
  kW4A8Dynamic,  // int4 with a scale a row (largest magnitude / 7)
  kW4A8Mxfp,
  kW8A8Mxfp8,  // 2^n under which the largest magnitude is at most 448
};
// ModelSlim's type string, "FLOAT" for kKeep; empty for forms that aren't ModelSlim's.
std::string_view modelslim_type_name(MatrixForm form);

// How a static matrix's activations become int8: clamp(round(x / scale) + offset).
struct InputQuant {
  float scale = 1;
  int offset = 0;
};

// One tensor of a form.
struct FormPart {
  std::string suffix;  // ".weight_scale"
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  int rows_per_entry = 1;  // rows of the matrix to one of the tensor; 0: one value for all
};
// The parts of a matrix [rows, columns], in the order in which files hold them. `splits_input`: its inputs may be split
// over ranks (down_proj, w2), which W4A8's correction follows.
std::vector<FormPart> form_parts(MatrixForm form, int64_t rows, int64_t columns, bool splits_input);

// Why the form can't hold a matrix of this shape; empty if it can.
std::string form_refusal(MatrixForm form, int64_t rows, int64_t columns);

// A run of rows [row_begin, row_begin + rows) with row_begin a multiple of kFormRowGrain.
inline constexpr int64_t kFormRowGrain = 128;
struct FormRows {
  const float* x = nullptr;  // [rows, columns]
  int64_t row_begin = 0, rows = 0, columns = 0;
  int64_t matrix_rows = 0;
  bool splits_input = false;
  InputQuant input;
};
// The bytes that these rows are in each part, in the order of form_parts; of a part with rows_per_entry 0 its whole,
// for every run. kDataLoss names the row that holds a value that is no number, or that a form can't scale.
Result<std::vector<std::vector<std::byte>>> encode_rows(MatrixForm form, const FormRows& rows);

}  // namespace baton::weights
