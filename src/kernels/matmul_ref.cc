// The plain reference of a tile, and the definition of every format's sum. acc starts at 0; groups g ascend; every
// integer sum is exact in int32; float() rounds to nearest even; fma rounds once; products written a*b round by
// themselves. d, m, dmin are f16 values made fp32; xs is the activation group's scale, xq its codes.
//
//   f32, f16       acc = fma(x[k], w[k], acc)
//   bf16           per pair: acc = fma(x[2i+1], w[2i+1], acc), then acc = fma(x[2i], w[2i], acc)
//                  (in sequence, not in a leaf of the tree: bf16_span(K) inputs at a time from zero, then added in
//                  order)
//   q8_0 q4_0 q5_0 I = sum xq (code - offset);        acc = fma(float(I), d*xs, acc)
//   q4_1 q5_1      I = sum xq code;                   acc = fma(float(I), d*xs, acc)
//                  X = sum xq;                        acc = fma(m, float(X)*xs, acc)
//   q4_k q5_k      I = sum_j sc[j] sum xq code;       acc = fma(float(I), d*xs, acc)
//                  M = sum_j mn[j] sum xq (of run j); acc = fma(-float(M), dmin*xs, acc)
//   q6_k           I = sum_j sc[j] sum xq (code-32);  acc = fma(float(I), d*xs, acc)
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul_tile.h"
#include "tensor/float_convert.h"

namespace baton::kernels {
namespace {

using tensor::DType;

float f16_at(const std::byte* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return tensor::f16_to_float(value);
}

float bf16_at(const std::byte* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return tensor::bf16_to_float(value);
}

float f32_at(const std::byte* bytes) {
  float value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

template <typename Sum>
void for_each_output(const MatmulTile& t, int64_t panel_step, Sum sum) {
  const int width = t.panel_count * 16;
  for (int n = 0; n < width; ++n) {
    const std::byte* panel = t.panels + n / 16 * panel_step;
    for (int r = 0; r < t.rows; ++r) t.out[r * width + n] = sum(panel, n % 16, r);
  }
}

template <DType kType>
void plain_tile(const MatmulTile& t) {
  for_each_output(t, t.layout->panel_bytes, [&](const std::byte* panel, int n, int r) {
    const std::byte* x = t.x + r * t.x_stride;
    float acc = 0;
    for (int64_t k = t.k_begin; k < t.k_end; ++k) {
      const float w = kType == DType::kF32 ? f32_at(panel + k * 64 + n * 4) : f16_at(panel + k * 32 + n * 2);
      acc = std::fma(f32_at(x + k * 4), w, acc);
    }
    return acc;
  });
}

void bf16_tile(const MatmulTile& t) {
  for_each_output(t, 64, [&](const std::byte* panel, int n, int r) {
    const std::byte* x = t.x + r * t.x_stride;
    float acc = 0;
    for (int64_t k = t.k_begin; k < t.k_end; k += 2) {
      const std::byte* w = panel + k * 128 + n * 4;
      acc = std::fma(bf16_at(x + k * 2 + 2), bf16_at(w + 2), acc);
      acc = std::fma(bf16_at(x + k * 2), bf16_at(w), acc);
    }
    return acc;
  });
}

// The codes of one group of 32 of one row of W, less their offset, times the codes of x: inputs [begin, end) of it.
int32_t dot(const uint8_t* codes, int offset, const int8_t* x, int begin, int end) {
  int32_t sum = 0;
  for (int k = begin; k < end; ++k) sum += (codes[k] - offset) * x[k];
  return sum;
}

template <DType kType>
void group32_tile(const MatmulTile& t) {
  constexpr bool kMin = kType == DType::kQ4_1 || kType == DType::kQ5_1;
  const int64_t groups = t.features / 32;
  for_each_output(t, t.layout->panel_bytes, [&](const std::byte* panel, int n, int r) {
    const auto* x = reinterpret_cast<const int8_t*>(t.x + r * t.x_stride);
    float acc = 0;
    for (int64_t g = t.k_begin / 32; g < t.k_end / 32; ++g) {
      uint8_t codes[32];
      unpack_codes(kType, *t.layout, panel, n, g, codes);
      const int32_t sum = dot(codes, code_offset(kType), x + g * 32, 0, 32);
      const float scale = f16_at(panel + t.layout->scales + g * 32 + n * 2) * t.x_scales[r * groups + g];
      acc = std::fma(static_cast<float>(sum), scale, acc);
      if (kMin) acc = std::fma(f16_at(panel + t.layout->mins + g * 32 + n * 2), t.scaled_sums[r * groups + g], acc);
    }
    return acc;
  });
}

template <DType kType>
void group256_tile(const MatmulTile& t) {
  constexpr bool kSigned = kType == DType::kQ6_K;
  constexpr int kRun = kSigned ? 16 : 32;  // inputs that share a sub-scale
  constexpr int kRuns = 256 / kRun;
  const int64_t blocks = t.features / 256;
  for_each_output(t, t.layout->panel_bytes, [&](const std::byte* panel, int n, int r) {
    const auto* x = reinterpret_cast<const int8_t*>(t.x + r * t.x_stride);
    float acc = 0;
    for (int64_t b = t.k_begin / 256; b < t.k_end / 256; ++b) {
      int32_t sum = 0, minimum = 0;
      for (int j = 0; j < kRuns; ++j) {
        const int64_t group = b * 8 + j * kRun / 32;
        uint8_t codes[32];
        unpack_codes(kType, *t.layout, panel, n, group, codes);
        const int begin = j * kRun % 32;
        const int64_t at = (b * kRuns + j) / 2 * 32 + n * 2 + j % 2;
        const auto factor = static_cast<uint8_t>(panel[t.layout->sub_scales + at]);
        sum += (kSigned ? static_cast<int8_t>(factor) : factor) *
               dot(codes, code_offset(kType), x + group * 32, begin, begin + kRun);
        if (!kSigned) {
          minimum += static_cast<uint8_t>(panel[t.layout->sub_mins + at]) * t.sums[r * (t.features / 32) + group];
        }
      }
      const float xs = t.x_scales[r * blocks + b];
      acc = std::fma(static_cast<float>(sum), f16_at(panel + t.layout->scales + b * 32 + n * 2) * xs, acc);
      if (kSigned) continue;
      acc = std::fma(-static_cast<float>(minimum), f16_at(panel + t.layout->mins + b * 32 + n * 2) * xs, acc);
    }
    return acc;
  });
}

}  // namespace

TileFunction matmul_tile_ref(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return plain_tile<DType::kF32>;
    case DType::kF16:
      return plain_tile<DType::kF16>;
    case DType::kBF16:
      return bf16_tile;
    case DType::kQ4_0:
      return group32_tile<DType::kQ4_0>;
    case DType::kQ4_1:
      return group32_tile<DType::kQ4_1>;
    case DType::kQ5_0:
      return group32_tile<DType::kQ5_0>;
    case DType::kQ5_1:
      return group32_tile<DType::kQ5_1>;
    case DType::kQ8_0:
      return group32_tile<DType::kQ8_0>;
    case DType::kQ4_K:
      return group256_tile<DType::kQ4_K>;
    case DType::kQ5_K:
      return group256_tile<DType::kQ5_K>;
    case DType::kQ6_K:
      return group256_tile<DType::kQ6_K>;
    default:
      BATON_CHECK(false, "no matmul for {}", tensor::dtype_name(dtype));
  }
}

}  // namespace baton::kernels
