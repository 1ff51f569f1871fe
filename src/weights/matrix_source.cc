#include "weights/matrix_source.h"

#include <cmath>
#include <cstring>

#include "weights/dequantize.h"

namespace baton::weights {

using tensor::DType;

namespace {

// With sizes as constants a copy is one or a few moves.
template <size_t kScale, size_t kCodes>
void join_blocks(int64_t blocks, const std::byte* scale, const std::byte* code, std::byte* out) {
  for (int64_t block = 0; block < blocks; ++block) {
    std::memcpy(out, scale + static_cast<size_t>(block) * kScale, kScale);
    std::memcpy(out + kScale, code + static_cast<size_t>(block) * kCodes, kCodes);
    out += kScale + kCodes;
  }
}

}  // namespace

const std::byte* MatrixSource::stored_rows(int64_t begin) const {
  return layout == Layout::kRows ? codes + begin * code_row_bytes : nullptr;
}

void MatrixSource::read_rows(int64_t begin, int64_t count, std::byte* out) const {
  const int64_t bytes = row_bytes();
  if (const std::byte* stored = stored_rows(begin)) {
    std::memcpy(out, stored, static_cast<size_t>(count * bytes));
    return;
  }
  for (int64_t row = begin; row < begin + count; ++row, out += bytes) {
    switch (layout) {
      case Layout::kBlocks:
        put_blocks(row, out);
        break;
      case Layout::kSplitHalves:
        put_split_halves(row, out);
        break;
      default:
        put_output_pair(row, out);
    }
  }
}

void MatrixSource::put_blocks(int64_t row, std::byte* out) const {
  const auto& info = tensor::dtype_info(dtype);
  const int64_t blocks = columns / info.block_elements;
  const std::byte* code = codes + row * code_row_bytes;
  const std::byte* scale = scales + row / rows_per_scale * scale_row_bytes;
  const auto code_size = static_cast<size_t>(info.block_bytes - scale_bytes);
  if (scale_bytes == 1 && code_size == 16) return join_blocks<1, 16>(blocks, scale, code, out);
  if (scale_bytes == 1 && code_size == 32) return join_blocks<1, 32>(blocks, scale, code, out);
  if (scale_bytes == 2 && code_size == 16) return join_blocks<2, 16>(blocks, scale, code, out);
  if (scale_bytes == 4 && code_size == 128) return join_blocks<4, 128>(blocks, scale, code, out);
  for (int64_t block = 0; block < blocks; ++block) {
    std::memcpy(out, scale, static_cast<size_t>(scale_bytes));
    std::memcpy(out + scale_bytes, code, code_size);
    out += info.block_bytes;
    scale += scale_bytes;
    code += code_size;
  }
}

void MatrixSource::put_split_halves(int64_t row, std::byte* out) const {
  const auto* block = reinterpret_cast<const uint8_t*>(codes + row * code_row_bytes);
  for (int64_t i = 0; i < columns; i += 32, block += 17, out += 17) {
    const auto code = [block](int at) { return at < 16 ? block[1 + at] & 15 : block[1 + at - 16] >> 4; };
    out[0] = static_cast<std::byte>(block[0]);
    for (int pair = 0; pair < 16; ++pair) {
      out[1 + pair] = static_cast<std::byte>(code(2 * pair) | code(2 * pair + 1) << 4);
    }
  }
}

void MatrixSource::put_output_pair(int64_t row, std::byte* out) const {
  const std::byte* pairs = codes + row / 2 * code_row_bytes;
  const int shift = row % 2 == 0 ? 0 : 4;
  for (int64_t i = 0; i < columns / 2; ++i) {
    uint16_t two;  // inputs 2i and 2i + 1, each with both outputs
    std::memcpy(&two, pairs + 2 * i, sizeof(two));
    const unsigned codes_of_row = static_cast<unsigned>(two) >> shift & 0x0f0fu;
    out[i] = static_cast<std::byte>((codes_of_row | codes_of_row >> 4) & 0xffu);
  }
}

void MatrixSource::scale_channel(int64_t row, const std::byte* codes_of_row, float* out) const {
  float scale = channel_scales[static_cast<size_t>(row)];
  if (static_input) scale /= static_input->input_scale;
  const auto* bytes = reinterpret_cast<const uint8_t*>(codes_of_row);
  for (int64_t i = 0; i < columns; ++i) {
    int code = 0;
    if (dtype == DType::kInt4Channel) {
      const int nibble = bytes[i / 2] >> (i % 2 * 4) & 15;
      code = (nibble ^ 8) - 8;  // two's complement
    } else {
      code = static_cast<int8_t>(bytes[i]);
    }
    out[i] = scale * static_cast<float>(code);
  }
}

Result<void> MatrixSource::dequantize_rows(int64_t begin, int64_t count, float* out) const {
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes()));
  for (int64_t row = begin; row < begin + count; ++row, out += columns) {
    read_rows(row, 1, bytes.data());
    if (!channel_scales.empty()) {
      scale_channel(row, bytes.data(), out);
      continue;
    }
    dequantize_row(dtype, bytes.data(), columns, out);
    if (layout != Layout::kBlocks && layout != Layout::kSplitHalves) continue;
    for (int64_t i = 0; i < columns; ++i) {
      if (std::isfinite(out[i])) continue;
      return fail(Code::kDataLoss, "tensor {}{}{}: row {}, input {} is {}", name, scale_name.empty() ? "" : " with ",
                  scale_name, row, i, out[i]);
    }
  }
  return {};
}

}  // namespace baton::weights
