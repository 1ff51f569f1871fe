// fp32 rows to the bytes of each form.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float_convert.h"
#include "weights/quantize/matrix_form.h"

namespace baton::weights {
namespace {

using Parts = std::vector<std::vector<std::byte>>;

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* data = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), data, data + sizeof(T));
}

float largest(const float* x, int64_t count) {
  float found = 0;
  for (int64_t i = 0; i < count; ++i) found = std::max(found, std::abs(x[i]));
  return found;
}

// To nearest, ties to even, held in [low, high].
int code_of(float value, int low, int high) {
  return static_cast<int>(std::clamp(std::nearbyint(value), static_cast<float>(low), static_cast<float>(high)));
}

// Boundaries between e2m1's magnitudes; at a boundary the even code wins.
uint8_t e2m1_code(float value) {
  constexpr std::array<float, 7> kBounds{0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float magnitude = std::abs(value);
  uint8_t code = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    const bool above = i % 2 == 0 ? magnitude > kBounds[i] : magnitude >= kBounds[i];
    code += above ? 1 : 0;
  }
  return static_cast<uint8_t>(std::signbit(value) ? code | 8 : code);
}

// The e8m0 scale of a group: its largest magnitude's power of two, raised by one from 1.75 times it on, brings the
// largest to below 2^top_exponent * 1.75. A group of zeros, or below what a scale can bring up, takes the smallest.
uint8_t shared_exponent(float largest_magnitude, int top_exponent) {
  const uint32_t raised = std::bit_cast<uint32_t>(largest_magnitude) + (uint32_t{1} << 21);
  const int exponent = static_cast<int>(raised >> 23) - top_exponent;
  return static_cast<uint8_t>(std::clamp(exponent, 0, 254));
}

void put_fp8_blocks(const FormRows& r, Parts& out) {
  for (int64_t begin = 0; begin < r.rows; begin += 128) {
    const int64_t rows = std::min<int64_t>(128, r.rows - begin);
    std::vector<float> scales(static_cast<size_t>(r.columns / 128));
    for (int64_t row = 0; row < rows; ++row) {
      for (size_t block = 0; block < scales.size(); ++block) {
        const float* x = r.x + (begin + row) * r.columns + static_cast<int64_t>(block) * 128;
        scales[block] = std::max(scales[block], largest(x, 128));
      }
    }
    for (float& scale : scales) scale = scale == 0 ? 1 : scale / 448;
    for (const float scale : scales) append(out[1], scale);
    for (int64_t row = begin; row < begin + rows; ++row) {
      for (int64_t i = 0; i < r.columns; ++i) {
        out[0].push_back(
            std::byte{tensor::float_to_e4m3(r.x[row * r.columns + i] / scales[static_cast<size_t>(i / 128)])});
      }
    }
  }
}

void put_int4_groups(const FormRows& r, Parts& out) {
  for (int64_t i = 0; i < r.rows * r.columns; i += 32) {
    const float* x = r.x + i;
    // A scale of zero would divide by zero: the smallest number that changes nothing.
    const float wanted = largest(x, 32) / 7.5f;
    const uint16_t bits = tensor::float_to_bf16(wanted == 0 ? 0x1p-23f : wanted);
    const float scale = tensor::bf16_to_float(bits);
    append(out[1], bits);
    for (int k = 0; k < 32; k += 2) {
      const int even = code_of(x[k] / scale, -8, 7) + 8;
      const int odd = code_of(x[k + 1] / scale, -8, 7) + 8;
      out[0].push_back(static_cast<std::byte>(even | odd << 4));
    }
  }
  append(out[2], static_cast<int32_t>(r.matrix_rows));
  append(out[2], static_cast<int32_t>(r.columns));
}

void put_mxfp4(const FormRows& r, Parts& out) {
  for (int64_t i = 0; i < r.rows * r.columns; i += 32) {
    const float* x = r.x + i;
    const uint8_t exponent = shared_exponent(largest(x, 32), 2);
    const float scale = tensor::e8m0_to_float(exponent);
    append(out[1], exponent);
    for (int k = 0; k < 32; k += 2) {
      out[0].push_back(static_cast<std::byte>(e2m1_code(x[k] / scale) | e2m1_code(x[k + 1] / scale) << 4));
    }
  }
}

void put_mxfp8(const FormRows& r, Parts& out) {
  for (int64_t i = 0; i < r.rows * r.columns; i += 32) {
    const uint8_t exponent = shared_exponent(largest(r.x + i, 32), 8);
    const float scale = tensor::e8m0_to_float(exponent);
    append(out[1], exponent);
    for (int k = 0; k < 32; ++k) out[0].push_back(std::byte{tensor::float_to_e4m3(r.x[i + k] / scale)});
  }
}

// int8 rows; the sum of a row's codes.
int32_t put_int8_row(const float* x, int64_t columns, float scale, std::vector<std::byte>& out) {
  int32_t sum = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const int code = code_of(x[i] / scale, -127, 127);
    sum += code;
    out.push_back(static_cast<std::byte>(static_cast<int8_t>(code)));
  }
  return sum;
}

// The scale of a row of zeros changes nothing; 1 keeps it a number.
float row_scale(const float* x, int64_t columns, int levels) {
  const float scale = largest(x, columns) / static_cast<float>(levels);
  return scale == 0 ? 1 : scale;
}

void put_int8_dynamic(const FormRows& r, Parts& out) {
  for (int64_t row = 0; row < r.rows; ++row) {
    const float* x = r.x + row * r.columns;
    const float scale = row_scale(x, r.columns, 127);
    put_int8_row(x, r.columns, scale, out[0]);
    append(out[1], scale);
    append(out[2], 0.0f);
  }
}

void put_int8_static(const FormRows& r, Parts& out) {
  for (int64_t row = 0; row < r.rows; ++row) {
    const float* x = r.x + row * r.columns;
    const float scale = row_scale(x, r.columns, 127);
    const int32_t sum = put_int8_row(x, r.columns, scale, out[0]);
    append(out[1], scale);
    append(out[2], 0.0f);
    append(out[5], scale * r.input.scale);
    append(out[6], static_cast<int32_t>(-r.input.offset * sum));
  }
  append(out[3], r.input.scale);
  append(out[4], static_cast<int8_t>(r.input.offset));
}

// The correction of kernels that take nibbles as unsigned: 8 times the sum of the dequantised row, of each of the
// slices that ranks may hold.
void put_correction(const std::vector<int8_t>& codes, float scale, int64_t splits, std::vector<std::byte>& out) {
  const auto columns = static_cast<int64_t>(codes.size());
  for (int64_t split = 0; split < splits; ++split) {
    int64_t sum = 0;
    for (int64_t i = columns * split / splits; i < columns * (split + 1) / splits; ++i) {
      sum += codes[static_cast<size_t>(i)];
    }
    append(out, 8.0f * scale * static_cast<float>(sum));
  }
}

void put_int4_dynamic(const FormRows& r, Parts& out) {
  const int64_t splits = form_parts(MatrixForm::kW4A8Dynamic, r.matrix_rows, r.columns, r.splits_input)[3].shape[1];
  std::array<std::vector<int8_t>, 2> codes;
  for (int64_t row = 0; row < r.rows; ++row) {
    const float* x = r.x + row * r.columns;
    const float scale = row_scale(x, r.columns, 7);
    auto& mine = codes[static_cast<size_t>(row % 2)];
    mine.clear();
    for (int64_t i = 0; i < r.columns; ++i) mine.push_back(static_cast<int8_t>(code_of(x[i] / scale, -7, 7)));
    append(out[1], scale);
    append(out[2], 0.0f);
    put_correction(mine, scale, splits, out[3]);
    if (row % 2 == 0) continue;
    for (size_t i = 0; i < mine.size(); ++i) {
      out[0].push_back(static_cast<std::byte>((codes[0][i] & 15) | (codes[1][i] & 15) << 4));
    }
  }
}

Result<void> check_numbers(const FormRows& r) {
  for (int64_t row = 0; row < r.rows; ++row) {
    for (int64_t i = 0; i < r.columns; ++i) {
      const float value = r.x[row * r.columns + i];
      if (std::isfinite(value)) continue;
      return fail(Code::kDataLoss, "row {}, input {} is {}; such weights can't be quantised", r.row_begin + row, i,
                  value);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::vector<std::byte>>> encode_rows(MatrixForm form, const FormRows& rows) {
  BATON_TRY(check_numbers(rows));
  Parts out(form_parts(form, rows.matrix_rows, rows.columns, rows.splits_input).size());
  out[0].reserve(static_cast<size_t>(rows.rows * rows.columns));
  switch (form) {
    case MatrixForm::kFp8Block:
      put_fp8_blocks(rows, out);
      break;
    case MatrixForm::kInt4Group32:
      put_int4_groups(rows, out);
      break;
    case MatrixForm::kMxfp4Packed:
    case MatrixForm::kW4A8Mxfp:
      put_mxfp4(rows, out);
      break;
    case MatrixForm::kW8A8Mxfp8:
      put_mxfp8(rows, out);
      break;
    case MatrixForm::kW8A8:
      put_int8_static(rows, out);
      break;
    case MatrixForm::kW8A8Dynamic:
      put_int8_dynamic(rows, out);
      break;
    case MatrixForm::kW4A8Dynamic:
      put_int4_dynamic(rows, out);
      break;
    case MatrixForm::kKeep:
      BATON_CHECK(false, "a kept matrix is not encoded");
  }
  return out;
}

}  // namespace baton::weights
