// Packing of file rows into panels, and single rows back to fp32. Packing runs once, at load.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/gguf_block.h"
#include "kernels/matmul.h"
#include "kernels/matmul_onednn.h"
#include "kernels/panel_layout.h"
#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

using tensor::DType;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

bool is_supported(DType dtype) { return tensor::is_gguf_weight(dtype); }
bool is_plain(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

uint32_t load32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
void store32(std::byte* bytes, uint32_t value) { std::memcpy(bytes, &value, sizeof(value)); }

// 32 codes of one row into the parts of their group.
void pack_codes(DType dtype, std::byte* record, int row, int group, const uint8_t* codes) {
  const BlockLayout layout = block_layout(dtype);
  std::byte* to = record + layout.codes + group * layout.group_bytes + row * 4;
  std::byte* high_to = record + layout.high + group * layout.group_bytes + row * 4;
  const int bits = code_bits(dtype);
  if (bits == 8) {
    for (int step = 0; step < 8; ++step) store32(to + step * 64, load32(codes + 4 * step));
    return;
  }
  for (int line = 0; line < 4; ++line) {
    const uint32_t low = load32(codes + 8 * line) & 0x0f0f0f0fu;
    const uint32_t high = load32(codes + 8 * line + 4) & 0x0f0f0f0fu;
    store32(to + line * 64, low | high << 4);
  }
  if (bits == 5) {
    uint32_t word = 0;
    for (int step = 0; step < 8; ++step) word |= (load32(codes + 4 * step) >> 4 & 0x01010101u) << step;
    store32(high_to, word);
  } else if (bits == 6) {
    for (int line = 0; line < 2; ++line) {
      uint32_t word = 0;
      for (int t = 0; t < 4; ++t) word |= (load32(codes + 16 * line + 4 * t) >> 4 & 0x03030303u) << 2 * t;
      store32(high_to + line * 64, word);
    }
  }
}

void pack_quantized_row(const MatmulSpec& spec, std::byte* panel, int row, const std::byte* bytes) {
  const auto& info = tensor::dtype_info(spec.dtype);
  const BlockLayout layout = block_layout(spec.dtype);
  const int pairs = (layout.sub_mins - layout.sub_scales) / 32;  // 0 but for K-quants
  GgufBlock block;
  for (int64_t b = 0; b < spec.in_features / info.block_elements; ++b) {
    read_gguf_block(spec.dtype, bytes + b * info.block_bytes, block);
    std::byte* record = panel + b * layout.bytes;
    for (int g = 0; g < info.block_elements / 32; ++g) pack_codes(spec.dtype, record, row, g, block.codes + 32 * g);
    std::memcpy(record + layout.scales + row * 2, &block.scale, 2);
    if (has_min(spec.dtype)) std::memcpy(record + layout.mins + row * 2, &block.min, 2);
    for (int p = 0; p < pairs; ++p) {
      std::memcpy(record + layout.sub_scales + p * 32 + row * 2, block.sub_scales + 2 * p, 2);
      if (has_min(spec.dtype)) std::memcpy(record + layout.sub_mins + p * 32 + row * 2, block.sub_mins + 2 * p, 2);
    }
  }
}

// Byte of input k in a plain panel.
int64_t plain_offset(DType dtype, int row, int64_t k) {
  if (dtype == DType::kF32) return k * 64 + row * 4;
  if (dtype == DType::kF16) return k * 32 + row * 2;
  return k / 2 * 256 + row * 4 + k % 2 * 2;
}

// The element size as a constant: a copy of known size is one move.
template <int kSize>
void copy_plain_row(const MatmulSpec& spec, std::byte* panel, int row, const std::byte* bytes) {
  for (int64_t k = 0; k < spec.in_features; ++k) {
    std::memcpy(panel + plain_offset(spec.dtype, row, k), bytes + k * kSize, kSize);
  }
}

void pack_plain_row(const MatmulSpec& spec, std::byte* panel, int row, const std::byte* bytes) {
  if (spec.dtype == DType::kF32) return copy_plain_row<4>(spec, panel, row, bytes);
  copy_plain_row<2>(spec, panel, row, bytes);
}

float read_f16(const std::byte* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return tensor::f16_to_float(value);
}

float read_plain(DType dtype, const std::byte* bytes) {
  if (dtype == DType::kF16) return read_f16(bytes);
  if (dtype == DType::kBF16) {
    uint16_t value;
    std::memcpy(&value, bytes, sizeof(value));
    return tensor::bf16_to_float(value);
  }
  float value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// The factor and the minimum of a run of inputs of a record that share them.
struct RunScale {
  float scale, min;
};
RunScale run_scale(DType dtype, const std::byte* record, int row, int run) {
  const BlockLayout layout = block_layout(dtype);
  RunScale out{read_f16(record + layout.scales + row * 2), 0.0f};
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

Result<void> check_spec(const MatmulSpec& spec) {
  const auto& info = tensor::dtype_info(spec.dtype);
  if (!is_supported(spec.dtype))
    return fail(Code::kUnimplemented, "a weight matrix of {} can't be multiplied", info.name);
  // 2^40 elements is far beyond any model and keeps every size below in 64 bits.
  if (spec.out_features < 1 || spec.in_features < 1 || spec.out_features > (int64_t{1} << 40) / spec.in_features) {
    return fail(Code::kInvalidArgument, "a weight matrix of {} x {}: sizes must be at least 1 and their product sane",
                spec.out_features, spec.in_features);
  }
  if (spec.in_features % info.block_elements != 0) {
    return fail(Code::kInvalidArgument, "{} inputs do not fill whole blocks of {} ({} each)", spec.in_features,
                info.name, info.block_elements);
  }
  if (spec.k_order == KOrder::kSequential) return {};
  if (spec.tree_unit < 1 || spec.in_features % spec.tree_unit != 0 || spec.tree_unit % weight_group(spec.dtype) != 0) {
    return fail(Code::kInvalidArgument, "tree unit {} must divide {} inputs and hold whole groups of {} ({} each)",
                spec.tree_unit, spec.in_features, info.name, weight_group(spec.dtype));
  }
  return {};
}

}  // namespace

int64_t weight_group(DType dtype) {
  if (dtype == DType::kBF16) return 2;
  return tensor::dtype_info(dtype).block_elements;
}

PanelLayout panel_layout(DType dtype, int64_t out_features, int64_t in_features) {
  PanelLayout layout;
  layout.panels = (out_features + 15) / 16;
  if (dtype == DType::kF32 || dtype == DType::kF16) {
    layout.panel_bytes = round_up(in_features * 16 * tensor::dtype_info(dtype).block_bytes, 64);
    return layout;
  }
  if (dtype == DType::kBF16) {
    layout.panels = round_up(layout.panels, 4);
    layout.panel_bytes = round_up(in_features, 32) * 32;
    return layout;
  }
  const int64_t blocks = in_features / tensor::dtype_info(dtype).block_elements;
  layout.panel_bytes = round_up(blocks * block_layout(dtype).bytes, 64);
  return layout;
}

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
  }
}

ActivationFormat activation_format(DType weight) {
  switch (weight) {
    case DType::kF32:
    case DType::kF16:
      return ActivationFormat::kF32;
    case DType::kBF16:
      return ActivationFormat::kBF16;
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return ActivationFormat::kInt8Group256;
    default:
      return ActivationFormat::kInt8Group32;
  }
}

Result<PackedMatrix> PackedMatrix::reserve(const MatmulSpec& spec) {
  BATON_TRY(check_spec(spec));
  PackedMatrix matrix;
  matrix.spec_ = spec;
  matrix.layout_ = panel_layout(spec.dtype, spec.out_features, spec.in_features);
  matrix.segments_ = k_segments(spec);
  matrix.uses_onednn_ = onednn_can_serve(spec);
  BATON_TRY_ASSIGN(matrix.data_, tensor::Buffer::allocate(static_cast<size_t>(matrix.layout_.panels) *
                                                          static_cast<size_t>(matrix.layout_.panel_bytes)));
  return matrix;
}

void PackedMatrix::pack_rows(int64_t row_begin, int64_t row_count, const std::byte* rows) {
  BATON_CHECK(row_begin % kPanelRows == 0 && row_begin >= 0 && row_begin + row_count <= spec_.out_features,
              "rows {} + {} of {}", row_begin, row_count, spec_.out_features);
  BATON_CHECK(row_count % kPanelRows == 0 || row_begin + row_count == spec_.out_features, "{} rows", row_count);
  const int64_t row_bytes = tensor::dtype_bytes(spec_.dtype, spec_.in_features);
  for (int64_t i = 0; i < row_count; ++i) {
    const int64_t n = row_begin + i;
    std::byte* panel = data_.data() + panel_offset(layout_, spec_.dtype, n / kPanelRows);
    const int row = static_cast<int>(n % kPanelRows);
    if (is_plain(spec_.dtype)) {
      pack_plain_row(spec_, panel, row, rows + i * row_bytes);
    } else {
      pack_quantized_row(spec_, panel, row, rows + i * row_bytes);
    }
  }
}

void unpack_row(const PackedMatrix& w, int64_t index, float* out) {
  const auto& spec = w.spec();
  const DType dtype = spec.dtype;
  BATON_CHECK(index >= 0 && index < spec.out_features, "row {} of {}", index, spec.out_features);
  const auto& layout = w.layout();
  const std::byte* panel = w.data() + panel_offset(layout, dtype, index / PackedMatrix::kPanelRows);
  const int row = static_cast<int>(index % PackedMatrix::kPanelRows);
  if (is_plain(dtype)) {
    for (int64_t k = 0; k < spec.in_features; ++k) out[k] = read_plain(dtype, panel + plain_offset(dtype, row, k));
    return;
  }
  const int elements = tensor::dtype_info(dtype).block_elements;
  for (int64_t b = 0; b < spec.in_features / elements; ++b) {
    unpack_block(dtype, panel + b * block_layout(dtype).bytes, row, out + b * elements);
  }
}

}  // namespace baton::kernels
