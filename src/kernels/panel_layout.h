// The layout of packed weights: panels of 16 output rows, so that a 512-bit register holds one input step of all 16.
//
// Plain formats: f32, f16: [K][16]. bf16: four panels interleaved, [K/32][16 pairs][64 rows][2 inputs], which is
// oneDNN's BA16a64b2a, so that oneDNN and our own kernel read the same bytes; N is padded to 64 and K to 32.
//
// Quantised formats keep their bit width. A panel is a row of records, one per block of K (32 or 256 inputs), each with
// all that the 16 rows have there, in the order of use, so that one row of x reads one stream of memory (a second
// stream costs a third of the speed). Inputs go in steps of 4 (one dpbusd): byte 4 * row + j of a step belongs to input
// 4 * step + j. Codes are unsigned. Parts of a record, in this order:
//   scales    f16[16];  mins: the same (m of q4_1 and q5_1, dmin of q4_k and q5_k)
//   sub_scales, sub_mins   K-quants: [pairs of runs][16 rows][2] bytes: 6-bit unsigned (q6_k: signed) factors
//   then for each 32 inputs:
//   high      q5: 64 bytes, bit s of a byte = bit 4 of the code in step s
//             q6_k: 128 bytes, bits 2t..2t+1 of a byte of line l = bits 4..5 of the code in step 4l + t
//   codes     4-bit part: 256 bytes; byte i of 64-byte line l holds step 2l (low nibble) and 2l + 1 (high nibble)
//             q8_0: 512 bytes, code = value + 128
// mxfp4 and int4_group32 are such records too, with a scale of 1 (e8m0) or 2 (bf16) bytes a row.
//
// fp8_block and mxfp8 interleave four panels too: their few instructions a byte leave one row waiting for the dot unit
// unless four panels are summed at once, and four streams of memory are slower than one. A record is 128 inputs of 64
// rows (the last filled up): 64 bytes of scales a panel (f32[16], or e8m0[4 groups][16]), then for each 4 inputs 64
// bytes of codes a panel, placed so that interleaving a register's low and high bytes of bf16 within 128-bit lanes
// gives two registers of 16 rows x 2 inputs. N is padded to 64.
//
// int8_channel, int8_static and int4_channel are codes alone, [steps][16 rows] as above, K filled up with zeros to
// whole lines (of 4 and 8 inputs); their scales are one fp32 vector beside the panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace baton::kernels {

// Functions of a format are static and constexpr: an inline one could be linked from an object compiled for AVX-512.
[[maybe_unused]] static constexpr bool is_k_quant(tensor::DType dtype) {
  return dtype == tensor::DType::kQ4_K || dtype == tensor::DType::kQ5_K || dtype == tensor::DType::kQ6_K;
}
[[maybe_unused]] static constexpr bool has_min(tensor::DType dtype) {
  return dtype == tensor::DType::kQ4_1 || dtype == tensor::DType::kQ5_1 || dtype == tensor::DType::kQ4_K ||
         dtype == tensor::DType::kQ5_K;
}
// e4m3 codes with a scale per group, multiplied as bf16.
[[maybe_unused]] static constexpr bool is_fp8(tensor::DType dtype) {
  return dtype == tensor::DType::kFp8Block || dtype == tensor::DType::kMxfp8;
}
// Integer codes with one scale per output row.
[[maybe_unused]] static constexpr bool is_channel(tensor::DType dtype) {
  return dtype == tensor::DType::kInt8Channel || dtype == tensor::DType::kInt4Channel ||
         dtype == tensor::DType::kInt8Static;
}
[[maybe_unused]] static constexpr bool is_plain(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 || dtype == tensor::DType::kF16 || dtype == tensor::DType::kBF16;
}
// Bytes of a block's scale.
[[maybe_unused]] static constexpr int scale_bytes(tensor::DType dtype) {
  using tensor::DType;
  if (dtype == DType::kFp8Block) return 4;
  return dtype == DType::kMxfp8 || dtype == DType::kMxfp4 ? 1 : 2;
}
// Bits of a code: 4, 5, 6 or 8.
[[maybe_unused]] static constexpr int code_bits(tensor::DType dtype) {
  using tensor::DType;
  if (dtype == DType::kQ8_0 || dtype == DType::kInt8Channel || dtype == DType::kInt8Static || is_fp8(dtype)) return 8;
  if (dtype == DType::kQ6_K) return 6;
  return dtype == DType::kQ5_0 || dtype == DType::kQ5_1 || dtype == DType::kQ5_K ? 5 : 4;
}
// What is taken from a code before it is multiplied is 1 << this; 0 for nothing. The code of mxfp4 is its doubled value
// plus 16, which a table makes of the e2m1 code.
[[maybe_unused]] static constexpr int code_offset_shift(tensor::DType dtype) {
  using tensor::DType;
  if (dtype == DType::kQ4_0 || dtype == DType::kInt4Group32 || dtype == DType::kInt4Channel) return 3;
  if (dtype == DType::kQ5_0 || dtype == DType::kMxfp4) return 4;
  if (dtype == DType::kQ6_K) return 5;
  return dtype == DType::kQ8_0 || dtype == DType::kInt8Channel || dtype == DType::kInt8Static ? 7 : 0;
}

// A record of a quantised panel: what belongs to the block, then its groups of 32 inputs, each high bits and codes.
struct BlockLayout {
  int scales = 0, mins = 0, sub_scales = 0, sub_mins = 0;  // byte offsets in a record
  int high = 0, codes = 0;                                 // of the first group
  int group_bytes = 0;                                     // from one group to the next
  int bytes = 0;
};
[[maybe_unused]] static constexpr BlockLayout block_layout(tensor::DType dtype) {
  const int bits = code_bits(dtype);
  const bool k_quant = is_k_quant(dtype);
  BlockLayout layout;
  layout.mins = 16 * scale_bytes(dtype);
  layout.sub_scales = layout.mins + (has_min(dtype) ? 32 : 0);
  layout.sub_mins = layout.sub_scales + (!k_quant ? 0 : bits == 6 ? 256 : 128);
  layout.high = layout.sub_mins + (k_quant && has_min(dtype) ? 128 : 0);
  layout.codes = layout.high + (bits == 5 ? 64 : bits == 6 ? 128 : 0);
  layout.group_bytes = layout.codes - layout.high + (bits == 8 ? 512 : 256);
  layout.bytes = layout.high + (k_quant ? 8 : 1) * layout.group_bytes;
  return layout;
}

// Byte of input k of one row in a plain panel.
[[maybe_unused]] static constexpr int64_t plain_offset(tensor::DType dtype, int row, int64_t k) {
  if (dtype == tensor::DType::kF32) return k * 64 + row * 4;
  if (dtype == tensor::DType::kF16) return k * 32 + row * 2;
  return k / 2 * 256 + row * 4 + k % 2 * 2;
}
// fp8 formats, from a panel's first byte: a record, the codes of a step of 4 inputs of its 16 rows, one row's code of
// input k, and its scale.
inline constexpr int64_t kFp8RecordInputs = 128;
inline constexpr int64_t kFp8RecordBytes = 4 * 64 * (1 + kFp8RecordInputs / 4);
inline constexpr int64_t kFp8StepBytes = 4 * 64;  // from one step to the next
[[maybe_unused]] static constexpr int64_t fp8_step_offset(int64_t k) {
  return k / kFp8RecordInputs * kFp8RecordBytes + (1 + k % kFp8RecordInputs / 4) * kFp8StepBytes;
}
[[maybe_unused]] static constexpr int64_t fp8_code_offset(int row, int64_t k) {
  return fp8_step_offset(k) + row / 4 * 16 + k % 4 / 2 * 8 + row % 4 * 2 + k % 2;
}
[[maybe_unused]] static constexpr int64_t fp8_scale_offset(tensor::DType dtype, int row, int64_t k) {
  const int64_t record = k / kFp8RecordInputs * kFp8RecordBytes;
  if (dtype == tensor::DType::kFp8Block) return record + row * 4;
  return record + k % kFp8RecordInputs / 32 * 16 + row;
}
// Byte of the code of input k of one row in a panel of a channel format; int4: the low nibble in even steps.
[[maybe_unused]] static constexpr int64_t channel_offset(tensor::DType dtype, int row, int64_t k) {
  return k / (dtype == tensor::DType::kInt4Channel ? 8 : 4) * 64 + row * 4 + k % 4;
}

struct PanelLayout {
  int64_t panel_bytes = 0;  // from one panel to the next (interleaved: of a quarter of a 64-row block)
  int64_t panels = 0;       // interleaved: rounded up to a multiple of 4
};
PanelLayout panel_layout(tensor::DType dtype, int64_t out_features, int64_t in_features);

// Inputs that share a weight scale and an activation scale: 32, 128 or 256; 2 for bf16 (a pair is one step) and
// int4_channel (a byte), 1 otherwise.
int64_t weight_group(tensor::DType dtype);
// Whether four panels share a stream of memory, each with 64 bytes in turn.
[[maybe_unused]] static constexpr bool is_interleaved(tensor::DType dtype) {
  return dtype == tensor::DType::kBF16 || is_fp8(dtype);
}
// Panels that a tile works on at once.
[[maybe_unused]] static constexpr int panels_per_tile(tensor::DType dtype) { return is_interleaved(dtype) ? 4 : 2; }
// First byte of a panel. Interleaved: of the panel's first 64 bytes in its block.
[[maybe_unused]] static constexpr int64_t panel_offset(const PanelLayout& layout, tensor::DType dtype, int64_t panel) {
  if (is_interleaved(dtype)) return panel / 4 * 4 * layout.panel_bytes + panel % 4 * 64;
  return panel * layout.panel_bytes;
}

// The order in which K is summed. Each segment is summed from zero, in ascending order; then `merges` times: acc = top
// of the stack + acc, pop; then acc is pushed. This spells any tree over K, and a chain of spans.
struct KSegment {
  int64_t begin = 0, end = 0;  // multiples of weight_group (end: or K)
  int merges = 0;
};
inline constexpr int kMaxMergeDepth = 4;  // sums that wait on the stack: a tree over 16 leaves has four levels

// The unsigned codes of the 32 inputs of `group` (0 .. 7 of a super-block, else 0) of one row of a record.
void unpack_codes(tensor::DType dtype, const std::byte* record, int row, int group, uint8_t codes[32]);
// What one row's codes of a record are multiplied by (K-quants: beside their sub-scales; mxfp4: half its scale). Not
// for fp8.
float block_scale(tensor::DType dtype, const std::byte* record, int row);
// The scale of input k of one row in a panel of an fp8 format.
float fp8_scale(tensor::DType dtype, const std::byte* panel, int row, int64_t k);
// The signed value of input k of one row in a panel of a channel format.
int channel_code(tensor::DType dtype, const std::byte* panel, int row, int64_t k);
[[maybe_unused]] static constexpr int code_offset(tensor::DType dtype) {
  return code_offset_shift(dtype) == 0 ? 0 : 1 << code_offset_shift(dtype);
}

}  // namespace baton::kernels
