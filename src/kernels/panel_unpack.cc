// Packed rows back to fp32, and the codes and scales of a record one at a time: what the plain reference reads.
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/panel_layout.h"
#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

using tensor::DType;

template <typename T>
T read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
float read_f16(const std::byte* bytes) { return tensor::f16_to_float(read_as<uint16_t>(bytes)); }

float read_plain(DType dtype, const std::byte* bytes) {
  if (dtype == DType::kF16) return read_f16(bytes);
  if (dtype == DType::kBF16) return tensor::bf16_to_float(read_as<uint16_t>(bytes));
  return read_as<float>(bytes);
}

// The factor and the minimum of a run of inputs of a record that share them.
struct RunScale {
  float scale, min;
};
RunScale run_scale(DType dtype, const std::byte* record, int row, int run) {
  const BlockLayout layout = block_layout(dtype);
  RunScale out{block_scale(dtype, record, row), 0.0f};
  if (has_min(dtype)) out.min = read_f16(record + layout.mins + row * 2);
  if (!is_k_quant(dtype)) return out;
  const int at = run / 2 * 32 + row * 2 + run % 2;
  const auto factor = static_cast<uint8_t>(record[layout.sub_scales + at]);
  out.scale *= dtype == DType::kQ6_K ? static_cast<float>(static_cast<int8_t>(factor)) : static_cast<float>(factor);
  if (has_min(dtype)) out.min = -(out.min * static_cast<float>(static_cast<uint8_t>(record[layout.sub_mins + at])));
  return out;
}

void unpack_block(DType dtype, const std::byte* record, int row, float* out) {
  const int run_length = dtype == DType::kQ6_K ? 16 : 32;
  const int elements = tensor::dtype_info(dtype).block_elements;
  uint8_t codes[256];
  for (int group = 0; group < elements / 32; ++group) unpack_codes(dtype, record, row, group, codes + group * 32);
  for (int run = 0; run < elements / run_length; ++run) {
    const auto [scale, min] = run_scale(dtype, record, row, run);
    for (int k = run * run_length; k < (run + 1) * run_length; ++k) {
      const float product = scale * static_cast<float>(codes[k] - code_offset(dtype));
      out[k] = has_min(dtype) ? product + min : product;
    }
  }
}

void unpack_fp8_row(const MatmulSpec& spec, const std::byte* panel, int row, float* out) {
  for (int64_t k = 0; k < spec.in_features; ++k) {
    const auto code = static_cast<uint8_t>(panel[fp8_code_offset(row, k)]);
    out[k] = fp8_scale(spec.dtype, panel, row, k) * tensor::e4m3_to_float(code);
  }
}

}  // namespace

void unpack_codes(DType dtype, const std::byte* record, int row, int group, uint8_t codes[32]) {
  const BlockLayout layout = block_layout(dtype);
  const auto* low = reinterpret_cast<const uint8_t*>(record) + layout.codes + group * layout.group_bytes + row * 4;
  const auto* high = reinterpret_cast<const uint8_t*>(record) + layout.high + group * layout.group_bytes + row * 4;
  const int bits = code_bits(dtype);
  for (int k = 0; k < 32; ++k) {
    const int step = k / 4;
    const int j = k % 4;
    if (bits == 8) {
      codes[k] = low[step * 64 + j];
      continue;
    }
    const uint8_t pair = low[step / 2 * 64 + j];
    codes[k] = step % 2 == 0 ? pair & 0x0f : pair >> 4;
    if (bits == 5) codes[k] = static_cast<uint8_t>(codes[k] | (high[j] >> step & 1) << 4);
    if (bits == 6) codes[k] = static_cast<uint8_t>(codes[k] | (high[step / 4 * 64 + j] >> 2 * (step % 4) & 3) << 4);
    if (dtype == DType::kMxfp4) codes[k] = static_cast<uint8_t>(tensor::e2m1_doubled(codes[k]) + code_offset(dtype));
  }
}

float block_scale(DType dtype, const std::byte* record, int row) {
  const std::byte* at = record + block_layout(dtype).scales + row * scale_bytes(dtype);
  switch (dtype) {
    case DType::kMxfp4:
      return 0.5f * tensor::e8m0_to_float(static_cast<uint8_t>(*at));
    case DType::kInt4Group32:
      return tensor::bf16_to_float(read_as<uint16_t>(at));
    default:
      return read_f16(at);
  }
}

float fp8_scale(DType dtype, const std::byte* panel, int row, int64_t k) {
  const std::byte* at = panel + fp8_scale_offset(dtype, row, k);
  return dtype == DType::kFp8Block ? read_as<float>(at) : tensor::e8m0_to_float(static_cast<uint8_t>(*at));
}

int channel_code(DType dtype, const std::byte* panel, int row, int64_t k) {
  const auto byte = static_cast<uint8_t>(panel[channel_offset(dtype, row, k)]);
  if (dtype != DType::kInt4Channel) return byte - code_offset(dtype);
  return (k / 4 % 2 == 0 ? byte & 0x0f : byte >> 4) - code_offset(dtype);
}

void unpack_row(const PackedMatrix& w, int64_t index, float* out) {
  const auto& spec = w.spec();
  const DType dtype = spec.dtype;
  BATON_CHECK(index >= 0 && index < spec.out_features, "row {} of {}", index, spec.out_features);
  const std::byte* panel = w.data() + panel_offset(w.layout(), dtype, index / PackedMatrix::kPanelRows);
  const int row = static_cast<int>(index % PackedMatrix::kPanelRows);
  if (is_plain(dtype)) {
    for (int64_t k = 0; k < spec.in_features; ++k) out[k] = read_plain(dtype, panel + plain_offset(dtype, row, k));
    return;
  }
  if (is_fp8(dtype)) return unpack_fp8_row(spec, panel, row, out);
  if (is_channel(dtype)) {
    // deq_scale holds the input's scale too.
    const float scale = w.channel_scales()[index] / w.static_quant().input_scale;
    for (int64_t k = 0; k < spec.in_features; ++k) {
      out[k] = scale * static_cast<float>(channel_code(dtype, panel, row, k));
    }
    return;
  }
  const int elements = tensor::dtype_info(dtype).block_elements;
  for (int64_t b = 0; b < spec.in_features / elements; ++b) {
    unpack_block(dtype, panel + b * block_layout(dtype).bytes, row, out + b * elements);
  }
}

}  // namespace baton::kernels
