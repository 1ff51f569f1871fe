// The plain reference of a tile, and the definition of every format's sum. acc starts at 0; groups g ascend; every
// integer sum is exact in int32; float() rounds to nearest even; fma rounds once; products written a*b round by
// themselves. d, m, dmin are f16 values made fp32; xs is the activation group's scale, xq its codes.
//
//   f32, f16       acc = fma(x[k], w[k], acc)
//   bf16           per pair: acc = fma(x[2i+1], w[2i+1], acc), then acc = fma(x[2i], w[2i], acc)
//                  (in sequence, not in a leaf of the tree: bf16_span(K) inputs at a time from zero, then added in
//                  order)
//   fp8_block      per group: S = the sum of its pairs as above, from zero, w = the e4m3 value; acc = fma(S, d, acc)
//   mxfp8          the same; d = 2^(e8m0 - 127), so w d leaves bf16's range only where the fp32 product does
//   q8_0 q4_0 q5_0 I = sum xq (code - offset);        acc = fma(float(I), d*xs, acc)
//   int4_group32   the same; d is bf16
//   mxfp4          the same; code - offset is twice the e2m1 value, d = 2^(e8m0 - 128)
//   q4_1 q5_1      I = sum xq code;                   acc = fma(float(I), d*xs, acc)
//                  X = sum xq;                        acc = fma(m, float(X)*xs, acc)
//   q4_k q5_k      M = sum_j mn[j] sum xq (of run j); acc = fma(-float(M), dmin*xs, acc)
//                  I = sum_j sc[j] sum xq code;       acc = fma(float(I), d*xs, acc)
//   q6_k           I = sum_j sc[j] sum xq (code-32);  acc = fma(float(I), d*xs, acc)
//   int8_channel int4_channel   I = sum xq w over all of K; y = (float(I)*xs)*d
//   int8_static    I = sum xq w + quant_bias;               y = (float(I)*xs)*d, d = deq_scale, xs = 1 or NaN
//                  (exact in any order: the tree over K changes nothing. Ranks that split K must add I, not y.)
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

// sum(panel, n, r, begin, end): the products of row n of a panel with row r of x over [begin, end), from zero.
template <typename Sum>
float sum_segments(const MatmulTile& t, const std::byte* panel, int n, int r, Sum sum) {
  float stack[kMaxMergeDepth + 1];
  int depth = 0;
  for (int i = 0; i < t.segment_count; ++i) {
    const KSegment& segment = t.segments[i];
    float acc = sum(panel, n, r, segment.begin, segment.end);
    for (int merge = 0; merge < segment.merges; ++merge) acc = stack[--depth] + acc;
    stack[depth++] = acc;
  }
  return stack[0];
}

template <typename Sum>
void for_each_output(const MatmulTile& t, int64_t panel_step, Sum sum) {
  const int width = t.panel_count * 16;
  for (int n = 0; n < width; ++n) {
    const std::byte* panel = t.panels + n / 16 * panel_step;
    for (int r = 0; r < t.rows; ++r) t.out[r * width + n] = sum_segments(t, panel, n % 16, r, sum);
  }
}

template <DType kType>
void plain_tile(const MatmulTile& t) {
  for_each_output(t, t.layout->panel_bytes, [&](const std::byte* panel, int n, int r, int64_t begin, int64_t end) {
    const std::byte* x = t.x + r * t.x_stride;
    float acc = 0;
    for (int64_t k = begin; k < end; ++k) {
      const float w = kType == DType::kF32 ? f32_at(panel + k * 64 + n * 4) : f16_at(panel + k * 32 + n * 2);
      acc = std::fma(f32_at(x + k * 4), w, acc);
    }
    return acc;
  });
}

void bf16_tile(const MatmulTile& t) {
  for_each_output(t, 64, [&](const std::byte* panel, int n, int r, int64_t begin, int64_t end) {
    const std::byte* x = t.x + r * t.x_stride;
    float acc = 0;
    for (int64_t k = begin; k < end; k += 2) {
      const std::byte* w = panel + k * 128 + n * 4;
      acc = std::fma(bf16_at(x + k * 2 + 2), bf16_at(w + 2), acc);
      acc = std::fma(bf16_at(x + k * 2), bf16_at(w), acc);
    }
    return acc;
  });
}

template <DType kType>
void fp8_tile(const MatmulTile& t) {
  const int64_t inputs = weight_group(kType);
  for_each_output(t, 64, [&](const std::byte* panel, int n, int r, int64_t begin, int64_t end) {
    const std::byte* x = t.x + r * t.x_stride;
    const auto w = [&](int64_t k) { return tensor::e4m3_to_float(static_cast<uint8_t>(panel[fp8_code_offset(n, k)])); };
    float acc = 0;
    for (int64_t first = begin; first < end; first += inputs) {
      float sum = 0;
      for (int64_t k = first; k < first + inputs; k += 2) {
        sum = std::fma(bf16_at(x + k * 2 + 2), w(k + 1), sum);
        sum = std::fma(bf16_at(x + k * 2), w(k), sum);
      }
      acc = std::fma(sum, fp8_scale(kType, panel, n, first), acc);
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
  constexpr BlockLayout layout = block_layout(kType);
  const int64_t groups = t.features / 32;
  for_each_output(t, t.layout->panel_bytes, [&](const std::byte* panel, int n, int r, int64_t begin, int64_t end) {
    const auto* x = reinterpret_cast<const int8_t*>(t.x + r * t.x_stride);
    float acc = 0;
    for (int64_t g = begin / 32; g < end / 32; ++g) {
      const std::byte* record = panel + g * layout.bytes;
      uint8_t codes[32];
      unpack_codes(kType, record, n, 0, codes);
      const int32_t sum = dot(codes, code_offset(kType), x + g * 32, 0, 32);
      const float scale = block_scale(kType, record, n) * t.x_scales[r * groups + g];
      acc = std::fma(static_cast<float>(sum), scale, acc);
      if (has_min(kType)) acc = std::fma(f16_at(record + layout.mins + n * 2), t.scaled_sums[r * groups + g], acc);
    }
    return acc;
  });
}

template <DType kType>
void group256_tile(const MatmulTile& t) {
  constexpr bool kSigned = kType == DType::kQ6_K;
  constexpr int kRun = kSigned ? 16 : 32;  // inputs that share a sub-scale
  constexpr int kRuns = 256 / kRun;
  constexpr BlockLayout layout = block_layout(kType);
  const int64_t blocks = t.features / 256;
  for_each_output(t, t.layout->panel_bytes, [&](const std::byte* panel, int n, int r, int64_t begin, int64_t end) {
    const auto* x = reinterpret_cast<const int8_t*>(t.x + r * t.x_stride);
    float acc = 0;
    for (int64_t b = begin / 256; b < end / 256; ++b) {
      const std::byte* record = panel + b * layout.bytes;
      int32_t sum = 0, minimum = 0;
      for (int j = 0; j < kRuns; ++j) {
        const int group = j * kRun / 32;
        const int at_code = j * kRun % 32;
        const int at = j / 2 * 32 + n * 2 + j % 2;
        uint8_t codes[32];
        unpack_codes(kType, record, n, group, codes);
        const auto factor = static_cast<uint8_t>(record[layout.sub_scales + at]);
        sum += (kSigned ? static_cast<int8_t>(factor) : factor) *
               dot(codes, code_offset(kType), x + b * 256 + group * 32, at_code, at_code + kRun);
        if (kSigned) continue;
        minimum += static_cast<uint8_t>(record[layout.sub_mins + at]) * t.sums[r * (t.features / 32) + b * 8 + group];
      }
      const float xs = t.x_scales[r * blocks + b];
      if (!kSigned) acc = std::fma(-static_cast<float>(minimum), f16_at(record + layout.mins + n * 2) * xs, acc);
      acc = std::fma(static_cast<float>(sum), f16_at(record + layout.scales + n * 2) * xs, acc);
    }
    return acc;
  });
}

template <DType kType>
void channel_tile(const MatmulTile& t) {
  const int width = t.panel_count * 16;
  for (int n = 0; n < width; ++n) {
    const std::byte* panel = t.panels + n / 16 * t.layout->panel_bytes;
    for (int r = 0; r < t.rows; ++r) {
      const auto* x = reinterpret_cast<const int8_t*>(t.x + r * t.x_stride);
      int32_t sum = t.quant_bias == nullptr ? 0 : t.quant_bias[n];
      for (int64_t k = 0; k < t.features; ++k) sum += x[k] * channel_code(kType, panel, n % 16, k);
      t.out[r * width + n] = static_cast<float>(sum) * t.x_scales[r] * t.channel_scales[n];
    }
  }
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
    case DType::kMxfp4:
      return group32_tile<DType::kMxfp4>;
    case DType::kInt4Group32:
      return group32_tile<DType::kInt4Group32>;
    case DType::kFp8Block:
      return fp8_tile<DType::kFp8Block>;
    case DType::kMxfp8:
      return fp8_tile<DType::kMxfp8>;
    case DType::kInt8Channel:
      return channel_tile<DType::kInt8Channel>;
    case DType::kInt4Channel:
      return channel_tile<DType::kInt4Channel>;
    case DType::kInt8Static:
      return channel_tile<DType::kInt8Static>;
    default:
      BATON_CHECK(false, "no matmul for {}", tensor::dtype_name(dtype));
  }
}

}  // namespace baton::kernels
