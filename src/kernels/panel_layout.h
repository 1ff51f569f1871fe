// The layout of packed weights: panels of 16 output rows, so that a 512-bit register holds one input step of all 16.
//
// Plain formats: f32, f16: [K][16]. bf16: four panels interleaved, [K/32][16 pairs][64 rows][2 inputs], which is
// oneDNN's BA16a64b2a, so that oneDNN and our own kernel read the same bytes; N is padded to 64 and K to 32.
//
// Quantised formats keep their bit width. A panel has one section per kind of datum, each in order of K. Inputs go in
// steps of 4 (one dpbusd): byte 4 * row + j of a step belongs to input 4 * step + j. Codes are unsigned.
//   codes     4-bit part: 256 bytes per 32 inputs; byte i of 64-byte line l holds step 2l (low) and 2l + 1 (high
//   nibble)
//             q8_0: 512 bytes per 32 inputs, code = value + 128
//   high      q5: 64 bytes per 32 inputs, bit s of a byte = bit 4 of the code in step s
//             q6_k: 128 bytes per 32 inputs, bits 2t..2t+1 of a byte of line l = bits 4..5 of the code in step 4l + t
//   scales    f16[16] per block (32 or 256 inputs);  mins: the same (m of q4_1 and q5_1, dmin of q4_k and q5_k)
//   sub_scales, sub_mins   K-quants: [pairs][16 rows][2] bytes per super-block: 6-bit unsigned (q6_k: signed) factors
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace baton::kernels {

struct PanelLayout {
  int64_t panel_bytes = 0;  // from one panel to the next (bf16: of a quarter of a 64-row block)
  int64_t high = 0, scales = 0, mins = 0, sub_scales = 0, sub_mins = 0;  // byte offsets in a panel; codes are at 0
  int64_t panels = 0;                                                    // bf16: rounded up to a multiple of 4
};
PanelLayout panel_layout(tensor::DType dtype, int64_t out_features, int64_t in_features);

// Inputs that share a weight scale and an activation scale: 32 or 256; 2 for bf16 (a pair is one step), 1 otherwise.
int64_t weight_group(tensor::DType dtype);
// Panels that a tile works on at once.
inline constexpr int panels_per_tile(tensor::DType dtype) { return dtype == tensor::DType::kBF16 ? 4 : 2; }
// First byte of a panel. bf16: of the panel's 64 bytes in the first step of its block.
inline int64_t panel_offset(const PanelLayout& layout, tensor::DType dtype, int64_t panel) {
  if (dtype == tensor::DType::kBF16) return panel / 4 * 4 * layout.panel_bytes + panel % 4 * 64;
  return panel * layout.panel_bytes;
}

// The unsigned codes of inputs [32 * group, 32 * group + 32) of one row of a quantised panel.
void unpack_codes(tensor::DType dtype, const PanelLayout& layout, const std::byte* panel, int row, int64_t group,
                  uint8_t codes[32]);
// What is taken from a code before it is multiplied: 8, 16, 32, 128 or 0.
int code_offset(tensor::DType dtype);

}  // namespace baton::kernels
