// The kernels of attention_ops.h over the lane type Vec of the including file.
//
// Sketch, AVX-512, head_dim 64, bf16: a tile is 16 KiB of keys and 16 KiB of values. Conversion and transposition cost
// about 4500 cycles a tile, shared by all queries of the row block; a query costs 1024 fma of 16 lanes (scores and
// values) and 8 exp. Decode streams each key and value once for the whole head group.
#pragma once

#include "kernels/attention_ops.h"
#include "kernels/cache_codec_impl.h"
#include "kernels/math_impl.h"

namespace baton::kernels {
namespace {

inline constexpr int kTile = 128;

void store_row(const float* src, int count, tensor::DType dtype, std::byte* dst) {
  if (dtype != tensor::DType::kI8 && dtype != tensor::DType::kF8E4M3) return store_plain(src, count, dtype, dst);
  const float scale = code_scale(largest_magnitude(src, count), dtype);
  store_codes(src, count, scale, dtype, dst);
  __builtin_memcpy(dst + count, &scale, 4);
}

// A key or value of codes has its scale behind them.
template <tensor::DType kType>
inline __attribute__((always_inline)) float row_scale(const std::byte* row, int head_dim) {
  float scale = 1;
  if constexpr (kIsCode<kType>) __builtin_memcpy(&scale, row + head_dim, 4);
  return scale;
}

template <tensor::DType kType>
inline __attribute__((always_inline)) Vec load_scaled(const std::byte* row, int index, int n, float scale) {
  const Vec v = load_cache<kType>(row, index, n);
  if constexpr (kIsCode<kType>) return v * Vec::set(scale);
  return v;
}

template <tensor::DType kType>
inline constexpr int row_bytes(int head_dim) {
  if constexpr (kIsCode<kType>) return head_dim + 4;
  return kType == tensor::DType::kF32 ? head_dim * 4 : head_dim * 2;
}

void scale_row(const float* x, float scale, int count, float* y) {
  for (int i = 0; i < count; i += 16) {
    const int n = count - i < 16 ? count - i : 16;
    (Vec::load_n(x + i, n) * Vec::set(scale)).store_n(y + i, n);
  }
}

template <tensor::DType kType>
void load_keys_of(const std::byte* const* rows, int count, int head_dim, float* keys) {
  for (int t = 0; t < count; t += 16) {
    const int columns = count - t < 16 ? count - t : 16;
    float scales[16];
    for (int i = 0; i < columns; ++i) scales[i] = row_scale<kType>(rows[t + i], head_dim);
    for (int d = 0; d < head_dim; d += 16) {
      const int n = head_dim - d < 16 ? head_dim - d : 16;
      Vec block[16];
      for (int i = 0; i < 16; ++i) {
        block[i] = i < columns ? load_scaled<kType>(rows[t + i], d, n, scales[i]) : Vec::set(0);
      }
      Vec::transpose(block);
      for (int i = 0; i < n; ++i) block[i].store(keys + (d + i) * kTile + t);
    }
  }
}

void load_keys(const std::byte* const* rows, int count, tensor::DType dtype, int head_dim, float* keys) {
  with_cache_type(dtype,
                  [&]<tensor::DType kType>(TypeTag<kType>) { load_keys_of<kType>(rows, count, head_dim, keys); });
}

template <tensor::DType kType>
void load_values_of(const std::byte* const* rows, int count, int head_dim, int padded, float* values) {
  for (int t = 0; t < count; ++t) {
    const float scale = row_scale<kType>(rows[t], head_dim);
    for (int d = 0; d < head_dim; d += 16) {
      const int n = head_dim - d < 16 ? head_dim - d : 16;
      load_scaled<kType>(rows[t], d, n, scale).store(values + t * padded + d);
    }
  }
}

void load_values(const std::byte* const* rows, int count, tensor::DType dtype, int head_dim, int padded,
                 float* values) {
  with_cache_type(dtype, [&]<tensor::DType kType>(TypeTag<kType>) {
    load_values_of<kType>(rows, count, head_dim, padded, values);
  });
}

template <int kR, int kC>
inline void scores_block(const float* q, int padded, int head_dim, const float* keys, float* scores) {
  Vec sum[kR][kC];
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c] = Vec::set(0);
  }
  for (int d = 0; d < head_dim; ++d) {
    Vec k[kC];
    for (int c = 0; c < kC; ++c) k[c] = Vec::load(keys + d * kTile + c * 16);
    for (int r = 0; r < kR; ++r) {
      const Vec x = Vec::set(q[r * padded + d]);
      for (int c = 0; c < kC; ++c) sum[r][c] = Vec::fma(x, k[c], sum[r][c]);
    }
  }
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c].store(scores + r * kTile + c * 16);
  }
}

// Rows in groups of Vec::kRows, the last group smaller.
template <int kC, int kR = Vec::kRows>
inline void scores_rows(const float* q, int queries, int padded, int head_dim, const float* keys, float* scores) {
  int i = 0;
  for (; i + kR <= queries; i += kR) {
    scores_block<kR, kC>(q + i * padded, padded, head_dim, keys, scores + i * kTile);
  }
  if constexpr (kR > 1) {
    if (i < queries) {
      scores_rows<kC, kR - 1>(q + i * padded, queries - i, padded, head_dim, keys, scores + i * kTile);
    }
  }
}

void scores(const float* q, int queries, int padded, int head_dim, const float* keys, int count, float* out) {
  int t = 0;
  for (; t + 16 * Vec::kCols <= count; t += 16 * Vec::kCols) {
    scores_rows<Vec::kCols>(q, queries, padded, head_dim, keys + t, out + t);
  }
  for (; t < count; t += 16) scores_rows<1>(q, queries, padded, head_dim, keys + t, out + t);
}

float softmax(float* scores, int valid, float* m, float* sum) {
  const int full = valid / 16 * 16;
  const int rest = valid - full;
  Vec top = Vec::set(-__builtin_inff());
  for (int t = 0; t < full; t += 16) top = Vec::max(top, Vec::load(scores + t));
  if (rest > 0) top = Vec::max(top, Vec::keep_n(Vec::load(scores + full), rest, -__builtin_inff()));
  const float tile_max = top.reduce_max();
  const float new_max = *m > tile_max ? *m : tile_max;
  Vec partial = Vec::set(0);
  const Vec shift = Vec::set(new_max);
  for (int t = 0; t < full; t += 16) {
    const Vec w = math_impl::exp(Vec::load(scores + t) - shift);
    w.store(scores + t);
    partial = partial + w;
  }
  if (rest > 0) {
    const Vec w = Vec::keep_n(math_impl::exp(Vec::load(scores + full) - shift), rest, 0);
    w.store(scores + full);
    partial = partial + w;
  }
  // exp(0) is exactly 1.
  const float alpha = *m == new_max ? 1.0f : math_impl::exp(Vec::set(*m - new_max)).first();
  *m = new_max;
  *sum = Vec::fma(Vec::set(*sum), Vec::set(alpha), Vec::set(partial.reduce_add())).first();
  return alpha;
}

template <int kR, int kC>
inline __attribute__((always_inline)) void accumulate_steps(const float* weights, int begin, int end,
                                                            const float* values, int padded, Vec (&sum)[kR][kC]) {
  for (int t = begin; t < end; ++t) {
    Vec v[kC];
    for (int c = 0; c < kC; ++c) v[c] = Vec::load(values + t * padded + c * 16);
    for (int r = 0; r < kR; ++r) {
      const Vec w = Vec::set(weights[r * kTile + t]);
      for (int c = 0; c < kC; ++c) sum[r][c] = Vec::fma(w, v[c], sum[r][c]);
    }
  }
}

// The positions that all rows of the block see are added together; what a later row sees beyond them, alone. Masked
// positions are never multiplied: a zero weight would still turn -0 into +0.
template <int kR, int kC>
inline void accumulate_block(const float* weights, const int* valid, const float* alpha, const float* values,
                             int padded, float* o) {
  Vec sum[kR][kC];
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c] = Vec::load(o + r * padded + c * 16) * Vec::set(alpha[r]);
  }
  accumulate_steps<kR, kC>(weights, 0, valid[0], values, padded, sum);
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c].store(o + r * padded + c * 16);
  }
  for (int r = 1; r < kR; ++r) {
    if (valid[r] == valid[0]) continue;
    Vec one[1][kC];
    for (int c = 0; c < kC; ++c) one[0][c] = sum[r][c];
    accumulate_steps<1, kC>(weights + r * kTile, valid[0], valid[r], values, padded, one);
    for (int c = 0; c < kC; ++c) one[0][c].store(o + r * padded + c * 16);
  }
}

template <int kC, int kR = Vec::kRows>
inline void accumulate_rows(const float* weights, const int* valid, const float* alpha, int queries,
                            const float* values, int padded, float* o) {
  int i = 0;
  for (; i + kR <= queries; i += kR) {
    accumulate_block<kR, kC>(weights + i * kTile, valid + i, alpha + i, values, padded, o + i * padded);
  }
  if constexpr (kR > 1) {
    if (i < queries) {
      accumulate_rows<kC, kR - 1>(weights + i * kTile, valid + i, alpha + i, queries - i, values, padded,
                                  o + i * padded);
    }
  }
}

void accumulate(const float* weights, const int* valid, const float* alpha, int queries, const float* values,
                int padded, float* o) {
  int d = 0;
  for (; d + 16 * Vec::kCols <= padded; d += 16 * Vec::kCols) {
    accumulate_rows<Vec::kCols>(weights, valid, alpha, queries, values + d, padded, o + d);
  }
  for (; d < padded; d += 16) accumulate_rows<1>(weights, valid, alpha, queries, values + d, padded, o + d);
}

inline void fetch_rows(const std::byte* const* rows, int count, int row_bytes) {
  for (int i = 0; i < count; ++i) {
    for (int offset = 0; offset < row_bytes; offset += 64) __builtin_prefetch(rows[i] + offset, 0, 2);
  }
}

// Sixteen keys times kR queries, d by d: the keys are turned in registers. bf16 keys are turned as pairs (d, d + 1).
template <tensor::DType kType, int kR>
inline void scores_direct_block(const float* q, int padded, int head_dim, const std::byte* const* rows, int columns,
                                float* out) {
  Vec sum[kR];
  for (int r = 0; r < kR; ++r) sum[r] = Vec::set(0);
  float scales[16];
  if constexpr (kIsCode<kType>) {
    for (int i = 0; i < 16; ++i) scales[i] = row_scale<kType>(rows[i < columns ? i : 0], head_dim);
  }
  const auto add = [&](int d, Vec keys) __attribute__((always_inline)) {
    for (int r = 0; r < kR; ++r) sum[r] = Vec::fma(Vec::set(q[r * padded + d]), keys, sum[r]);
  };
  int d = 0;
  if constexpr (kType == tensor::DType::kBF16) {
    for (; d + 32 <= head_dim; d += 32) {
      Vec block[16];
      for (int i = 0; i < 16; ++i) {
        const std::byte* row = rows[i < columns ? i : 0];
        block[i] = Vec::load(reinterpret_cast<const float*>(row + 2 * d));
      }
      Vec::transpose(block);
      for (int i = 0; i < 16; ++i) {
        add(d + 2 * i, block[i].low_bf16());
        add(d + 2 * i + 1, block[i].high_bf16());
      }
    }
  }
  for (; d < head_dim; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    Vec block[16];
    for (int i = 0; i < 16; ++i) block[i] = load_cache<kType>(rows[i < columns ? i : 0], d, n);
    Vec::transpose(block);
    for (int i = 0; i < n; ++i) {
      if constexpr (kIsCode<kType>)
        add(d + i, block[i] * Vec::load(scales));
      else
        add(d + i, block[i]);
    }
  }
  for (int r = 0; r < kR; ++r) sum[r].store(out + r * kTile);
}

template <tensor::DType kType, int kR = Vec::kDirect>
inline void scores_direct_rows(const float* q, int queries, int padded, int head_dim, const std::byte* const* rows,
                               int columns, float* out) {
  int i = 0;
  for (; i + kR <= queries; i += kR) {
    scores_direct_block<kType, kR>(q + i * padded, padded, head_dim, rows, columns, out + i * kTile);
  }
  if constexpr (kR > 1) {
    if (i < queries) {
      scores_direct_rows<kType, kR - 1>(q + i * padded, queries - i, padded, head_dim, rows, columns, out + i * kTile);
    }
  }
}

template <tensor::DType kType>
void scores_direct_of(const float* q, int queries, int padded, int head_dim, const std::byte* const* rows,
                      const std::byte* const* ahead, int count, float* out) {
  for (int t = 0; t < count; t += 16) {
    const int columns = count - t < 16 ? count - t : 16;
    if (ahead != nullptr) fetch_rows(ahead + t, columns, row_bytes<kType>(head_dim));
    scores_direct_rows<kType>(q, queries, padded, head_dim, rows + t, columns, out + t);
  }
}

void scores_direct(const float* q, int queries, int padded, int head_dim, const std::byte* const* rows,
                   const std::byte* const* ahead, int count, tensor::DType dtype, float* out) {
  with_cache_type(dtype, [&]<tensor::DType kType>(TypeTag<kType>) {
    scores_direct_of<kType>(q, queries, padded, head_dim, rows, ahead, count, out);
  });
}

// kC vectors of the head from dimension d on; the last may be short (`last` elements).
template <tensor::DType kType, int kC, int kR>
inline void accumulate_direct_block(const float* weights, int count, const float* alpha, const std::byte* const* rows,
                                    int head_dim, int d, int last, int padded, float* o) {
  Vec sum[kR][kC];
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c] = Vec::load(o + r * padded + d + c * 16) * Vec::set(alpha[r]);
  }
  for (int t = 0; t < count; ++t) {
    const float scale = row_scale<kType>(rows[t], head_dim);
    Vec v[kC];
    for (int c = 0; c < kC; ++c) v[c] = load_scaled<kType>(rows[t], d + c * 16, c + 1 < kC ? 16 : last, scale);
    for (int r = 0; r < kR; ++r) {
      const Vec w = Vec::set(weights[r * kTile + t]);
      for (int c = 0; c < kC; ++c) sum[r][c] = Vec::fma(w, v[c], sum[r][c]);
    }
  }
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c].store(o + r * padded + d + c * 16);
  }
}

template <tensor::DType kType, int kC, int kR = Vec::kDirect>
inline void accumulate_direct_rows(const float* weights, int count, const float* alpha, int queries,
                                   const std::byte* const* rows, int head_dim, int d, int last, int padded, float* o) {
  int i = 0;
  for (; i + kR <= queries; i += kR) {
    accumulate_direct_block<kType, kC, kR>(weights + i * kTile, count, alpha + i, rows, head_dim, d, last, padded,
                                           o + i * padded);
  }
  if constexpr (kR > 1) {
    if (i < queries) {
      accumulate_direct_rows<kType, kC, kR - 1>(weights + i * kTile, count, alpha + i, queries - i, rows, head_dim, d,
                                                last, padded, o + i * padded);
    }
  }
}

template <tensor::DType kType>
void accumulate_direct_of(const float* weights, int count, const float* alpha, int queries,
                          const std::byte* const* rows, const std::byte* const* ahead, int head_dim, int padded,
                          float* o) {
  if (ahead != nullptr) fetch_rows(ahead, kTile, row_bytes<kType>(head_dim));
  int d = 0;
  for (; d + 16 * Vec::kCols <= head_dim; d += 16 * Vec::kCols) {
    accumulate_direct_rows<kType, Vec::kCols>(weights, count, alpha, queries, rows, head_dim, d, 16, padded, o);
  }
  for (; d < head_dim; d += 16) {
    const int last = head_dim - d < 16 ? head_dim - d : 16;
    accumulate_direct_rows<kType, 1>(weights, count, alpha, queries, rows, head_dim, d, last, padded, o);
  }
}

void accumulate_direct(const float* weights, int count, const float* alpha, int queries, const std::byte* const* rows,
                       const std::byte* const* ahead, tensor::DType dtype, int head_dim, int padded, float* o) {
  with_cache_type(dtype, [&]<tensor::DType kType>(TypeTag<kType>) {
    accumulate_direct_of<kType>(weights, count, alpha, queries, rows, ahead, head_dim, padded, o);
  });
}

void merge(float* ma, float* suma, float* oa, float mb, float sumb, const float* ob, int padded) {
  const float m = *ma > mb ? *ma : mb;
  const Vec ea = math_impl::exp(Vec::set(*ma - m));
  const Vec eb = math_impl::exp(Vec::set(mb - m));
  *suma = Vec::fma(Vec::set(sumb), eb, Vec::set(*suma) * ea).first();
  for (int d = 0; d < padded; d += 16) {
    Vec::fma(Vec::load(ob + d), eb, Vec::load(oa + d) * ea).store(oa + d);
  }
  *ma = m;
}

void finish(const float* o, float sum, int head_dim, float* out) {
  for (int d = 0; d < head_dim; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    (Vec::load(o + d) / Vec::set(sum)).store_n(out + d, n);
  }
}

constexpr AttentionOps kOps = {
    .store_row = store_row,
    .scale_row = scale_row,
    .load_keys = load_keys,
    .load_values = load_values,
    .scores = scores,
    .softmax = softmax,
    .accumulate = accumulate,
    .scores_direct = scores_direct,
    .accumulate_direct = accumulate_direct,
    .direct_queries = 2 * Vec::kDirect,
    .merge = merge,
    .finish = finish,
};

}  // namespace
}  // namespace baton::kernels
