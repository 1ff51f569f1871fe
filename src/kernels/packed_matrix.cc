// A weight matrix in packed form: its sizes, who fills it, and what a checkpoint may not say.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/matmul_onednn.h"
#include "kernels/matmul_scaled_tiles.h"
#include "kernels/panel_layout.h"
#include "kernels/panel_pack.h"
#include "kernels/weight_arena.h"

namespace baton::kernels {
namespace {

using tensor::DType;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

bool is_supported(DType dtype) {
  return tensor::is_gguf_weight(dtype) || is_fp8(dtype) || is_channel(dtype) || dtype == DType::kMxfp4 ||
         dtype == DType::kInt4Group32;
}

// |code of x| and |code of W| are at most 128: this many products fit in an int32, and quant_bias has its own check.
constexpr int64_t kMaxChannelInputs = 131072;
constexpr int64_t kLargestProduct = 128 * 128;

constexpr int64_t kMaxMatrices = int64_t{1} << 20;  // of one allocation: far beyond any model

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
  if (is_channel(spec.dtype) && spec.in_features >= kMaxChannelInputs) {
    return fail(Code::kInvalidArgument, "{} inputs of {}: the int32 sum of a row could overflow from {} on",
                spec.in_features, info.name, kMaxChannelInputs);
  }
  if (spec.k_order == KOrder::kSequential) return {};
  if (spec.tree_unit < 1 || spec.in_features % spec.tree_unit != 0 || spec.tree_unit % weight_group(spec.dtype) != 0) {
    return fail(Code::kInvalidArgument, "tree unit {} must divide {} inputs and hold whole groups of {} ({} each)",
                spec.tree_unit, spec.in_features, info.name, weight_group(spec.dtype));
  }
  return {};
}

void lower(int64_t& value, int64_t to) {
  std::atomic_ref<int64_t> shared(value);
  int64_t now = shared.load(std::memory_order_relaxed);
  while (to < now && !shared.compare_exchange_weak(now, to, std::memory_order_relaxed)) {
  }
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
  if (is_fp8(dtype)) {
    layout.panels = round_up(layout.panels, 4);
    layout.panel_bytes = round_up(in_features, kFp8RecordInputs) / kFp8RecordInputs * kFp8RecordBytes / 4;
    return layout;
  }
  if (is_channel(dtype)) {
    layout.panel_bytes = dtype == DType::kInt4Channel ? round_up(in_features, 8) * 8 : round_up(in_features, 4) * 16;
    return layout;
  }
  const int64_t blocks = in_features / tensor::dtype_info(dtype).block_elements;
  layout.panel_bytes = round_up(blocks * block_layout(dtype).bytes, 64);
  return layout;
}

ActivationFormat activation_format(DType weight) {
  switch (weight) {
    case DType::kF32:
    case DType::kF16:
      return ActivationFormat::kF32;
    case DType::kBF16:
    case DType::kFp8Block:
    case DType::kMxfp8:
      return ActivationFormat::kBF16;
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return ActivationFormat::kInt8Group256;
    case DType::kInt8Channel:
    case DType::kInt4Channel:
      return ActivationFormat::kInt8Row;
    case DType::kInt8Static:
      return ActivationFormat::kInt8Static;
    default:
      return ActivationFormat::kInt8Group32;
  }
}

Result<PackedMatrix> PackedMatrix::reserve(const MatmulSpec& spec, WeightArena* arena) {
  BATON_TRY_ASSIGN(auto matrices, reserve_many(spec, 1, arena));
  return std::move(matrices[0]);
}

PackedMatrix PackedMatrix::none(const MatmulSpec& spec, StaticQuant quant) {
  PackedMatrix matrix;
  matrix.spec_ = spec;
  matrix.spec_.out_features = 0;
  matrix.static_quant_ = quant;
  return matrix;
}

Result<std::vector<PackedMatrix>> PackedMatrix::reserve_many(const MatmulSpec& spec, int64_t count,
                                                             WeightArena* arena) {
  BATON_TRY(check_spec(spec));
  const PanelLayout layout = panel_layout(spec.dtype, spec.out_features, spec.in_features);
  const int64_t bytes = round_up(layout.panels * layout.panel_bytes, 64);
  const int64_t vector_bytes = is_channel(spec.dtype) ? layout.panels * kPanelRows * 4 : 0;  // 64 a panel
  const int64_t matrix_bytes = bytes + vector_bytes * (spec.dtype == DType::kInt8Static ? 2 : 1);
  if (count < 0 || count > kMaxMatrices || count > std::numeric_limits<int64_t>::max() / matrix_bytes) {
    return fail(Code::kInvalidArgument, "{} matrices of {} bytes in one allocation", count, matrix_bytes);
  }
  const bool uses_onednn = onednn_can_serve(spec) && !bf16_fma_pays();
  const bool alone = arena == nullptr || count == 0;
  WeightArena::Piece piece;
  if (alone) {
    piece.storage = std::make_shared<tensor::Buffer>();
    BATON_TRY_ASSIGN(*piece.storage, tensor::Buffer::allocate(static_cast<size_t>(count * matrix_bytes)));
    piece.data = piece.storage->data();
  } else {
    BATON_TRY_ASSIGN(piece, arena->take(count * matrix_bytes));
  }
  std::vector<PackedMatrix> matrices(static_cast<size_t>(count));
  for (size_t i = 0; i < matrices.size(); ++i) {
    PackedMatrix& matrix = matrices[i];
    matrix.spec_ = spec;
    matrix.layout_ = layout;
    matrix.segments_ = k_segments(spec);
    matrix.uses_onednn_ = uses_onednn;
    matrix.storage_ = piece.storage;
    matrix.data_ = piece.data + static_cast<int64_t>(i) * matrix_bytes;
    if (!is_channel(spec.dtype)) continue;
    matrix.channel_scales_ = reinterpret_cast<float*>(matrix.data_ + bytes);
    // NaN until it is given: finish tells.
    std::fill_n(matrix.channel_scales_, spec.out_features, std::numeric_limits<float>::quiet_NaN());
    if (spec.dtype == DType::kInt8Static) {
      matrix.quant_bias_ = reinterpret_cast<int32_t*>(matrix.data_ + bytes + vector_bytes);
    }
  }
  return matrices;
}

void PackedMatrix::pack_rows(int64_t row_begin, int64_t row_count, const std::byte* rows) {
  BATON_CHECK(row_begin % kPanelRows == 0 && row_begin >= 0 && row_begin + row_count <= spec_.out_features,
              "rows {} + {} of {}", row_begin, row_count, spec_.out_features);
  BATON_CHECK(row_count % kPanelRows == 0 || row_begin + row_count == spec_.out_features, "{} rows", row_count);
  const int64_t row_bytes = tensor::dtype_bytes(spec_.dtype, spec_.in_features);
  const int64_t blocks = spec_.in_features / tensor::dtype_info(spec_.dtype).block_elements;
  const auto note = [&](int64_t n, int64_t bad) {
    if (bad != kAllBlocksGood) lower(first_bad_block_, n * blocks + bad);
  };
  for (int64_t i = 0; i < row_count; ++i) {
    const int64_t n = row_begin + i;
    std::byte* panel = data_ + panel_offset(layout_, spec_.dtype, n / kPanelRows);
    int64_t bad_of_rows[kPanelRows];
    if (n % kPanelRows == 0 && i + kPanelRows <= row_count &&
        pack_whole_panel(spec_.dtype, spec_.in_features, panel, rows + i * row_bytes, row_bytes, bad_of_rows)) {
      for (int64_t r = 0; r < kPanelRows; ++r) note(n + r, bad_of_rows[r]);
      i += kPanelRows - 1;
      continue;
    }
    const int64_t bad =
        pack_panel_row(spec_.dtype, spec_.in_features, panel, static_cast<int>(n % kPanelRows), rows + i * row_bytes);
    note(n, bad);
  }
}

void PackedMatrix::set_channel_scales(int64_t row_begin, std::span<const float> scales) {
  BATON_CHECK(is_channel(spec_.dtype), "{} has no scale per output", tensor::dtype_name(spec_.dtype));
  BATON_CHECK(row_begin >= 0 && row_begin + std::ssize(scales) <= spec_.out_features, "scales {} + {} of {}", row_begin,
              scales.size(), spec_.out_features);
  std::ranges::copy(scales, channel_scales_ + row_begin);
}

void PackedMatrix::set_static(StaticQuant quant, std::span<const int32_t> quant_bias) {
  BATON_CHECK(spec_.dtype == DType::kInt8Static, "{} has no static activations", tensor::dtype_name(spec_.dtype));
  BATON_CHECK(std::ssize(quant_bias) == spec_.out_features, "quant_bias of {} for {} outputs", quant_bias.size(),
              spec_.out_features);
  static_quant_ = quant;
  std::ranges::copy(quant_bias, quant_bias_);
}

Result<void> PackedMatrix::finish() const {
  if (first_bad_block_ != kNoBadBlock) {
    const int64_t inputs = tensor::dtype_info(spec_.dtype).block_elements;
    const int64_t blocks = spec_.in_features / inputs;
    const int64_t begin = first_bad_block_ % blocks * inputs;
    return fail(Code::kDataLoss, "row {}, inputs {} to {} ({}): a scale or a value is not a finite number",
                first_bad_block_ / blocks, begin, begin + inputs - 1, tensor::dtype_name(spec_.dtype));
  }
  if (!is_channel(spec_.dtype)) return {};
  for (int64_t n = 0; n < spec_.out_features; ++n) {
    if (std::isfinite(channel_scales()[n])) continue;
    return fail(Code::kDataLoss, "row {} ({}): its scale is missing or not a finite number", n,
                tensor::dtype_name(spec_.dtype));
  }
  if (spec_.dtype != DType::kInt8Static) return {};
  const auto [input_scale, input_offset] = static_quant_;
  if (!std::isfinite(input_scale) || input_scale <= 0 || input_offset < -128 || input_offset > 127) {
    return fail(Code::kDataLoss, "input scale {} and offset {}: the scale must be above 0, the offset within int8",
                input_scale, input_offset);
  }
  const int64_t room = std::numeric_limits<int32_t>::max() - spec_.in_features * kLargestProduct;
  for (int64_t n = 0; n < spec_.out_features; ++n) {
    if (std::abs(int64_t{quant_bias()[n]}) <= room) continue;
    return fail(Code::kDataLoss, "row {}: a quant_bias of {} could overflow the int32 sum of {} inputs", n,
                quant_bias()[n], spec_.in_features);
  }
  return {};
}

}  // namespace baton::kernels
