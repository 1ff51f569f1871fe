// The kernels of latent_ops.h over the lane type Vec of the including file.
//
// Sketch, AVX-512, 64 heads, rank 512, rotary 64, one row: a tile of 128 positions is 147 KB of bf16 (84 KB packed).
// Reading it costs about 10,000 cycles; scores are 64 * 128 * 36 and values 64 * 128 * 32 fma of 16 lanes, 557,000
// cycles at one a cycle. So even decode is bound by arithmetic: 0.8 GB/s a core.
#pragma once

#include "kernels/cache_codec_impl.h"
#include "kernels/latent_ops.h"
#include "kernels/math_impl.h"

namespace baton::kernels {
namespace {

inline constexpr int kScoreStride = 128;

inline bool is_code(tensor::DType dtype) { return dtype == tensor::DType::kI8 || dtype == tensor::DType::kF8E4M3; }

void store_latent(const PagedEntry& entry, const float* latent, const float* rope, std::byte* dst) {
  if (!is_code(entry.dtype)) {
    store_plain(latent, entry.dim, entry.dtype, dst);
    store_plain(rope, entry.rope_dim, entry.dtype, dst + tensor::dtype_bytes(entry.dtype, entry.dim));
    return;
  }
  std::byte* scales = dst + entry.dim;
  int group = 0;
  for (int d = 0; d < entry.dim; d += kLatentScaleGroup, ++group) {
    const int n = entry.dim - d < kLatentScaleGroup ? entry.dim - d : kLatentScaleGroup;
    const float scale = code_scale(largest_magnitude(latent + d, n), entry.dtype);
    store_codes(latent + d, n, scale, entry.dtype, dst + d);
    __builtin_memcpy(scales + 4 * group, &scale, 4);
  }
  store_plain(rope, entry.rope_dim, tensor::DType::kBF16, scales + 4 * group);
}

void store_index_key(const PagedEntry& entry, const float* key, std::byte* dst) {
  if (!is_code(entry.dtype)) return store_plain(key, entry.dim, entry.dtype, dst);
  float scale = code_scale(largest_magnitude(key, entry.dim), entry.dtype);
  if (entry.dtype == tensor::DType::kF8E4M3) {
    __builtin_memcpy(dst + entry.dim, &scale, 4);
  } else {
    // The codes are of the scale as it is kept.
    scale = scale < 0x1p-24f ? 0x1p-24f : scale;
    scale = scale > 65504.0f ? 65504.0f : scale;
    uint16_t half;
    Vec::set(scale).store_f16_n(&half, 1);
    scale = Vec::load_f16_n(&half, 1).first();
    __builtin_memcpy(dst + entry.dim, &half, 2);
  }
  store_codes(key, entry.dim, scale, entry.dtype, dst);
}

template <tensor::DType kType>
inline void load_span(const std::byte* row, int begin, int end, float* to) {
  for (int d = begin; d < end; d += 16) {
    const int n = end - d < 16 ? end - d : 16;
    load_cache<kType>(row, d, n).store(to + d);
  }
}

template <tensor::DType kType>
inline void load_scaled_span(const std::byte* row, int begin, int end, float scale, float* to) {
  const Vec s = Vec::set(scale);
  for (int d = begin; d < end; d += 16) {
    const int n = end - d < 16 ? end - d : 16;
    (load_cache<kType>(row, d, n) * s).store(to + d);
  }
}

template <tensor::DType kType>
void load_codes_tile(const PagedEntry& entry, const std::byte* const* rows, int count, int stride, float* tile) {
  const int dim = entry.dim;
  for (int t = 0; t < count; ++t) {
    const std::byte* row = rows[t];
    float* to = tile + static_cast<int64_t>(t) * stride;
    const std::byte* next = row + dim;
    if (entry.kind == PagedKind::kIndexKeys) {
      float scale;
      uint16_t half;
      if constexpr (kType == tensor::DType::kI8) {
        __builtin_memcpy(&half, next, 2);
        scale = Vec::load_f16_n(&half, 1).first();
      } else {
        __builtin_memcpy(&scale, next, 4);
      }
      load_scaled_span<kType>(row, 0, dim, scale, to);
      continue;
    }
    for (int d = 0; d < dim; d += kLatentScaleGroup, next += 4) {
      float scale;
      __builtin_memcpy(&scale, next, 4);
      load_scaled_span<kType>(row, d, d + kLatentScaleGroup < dim ? d + kLatentScaleGroup : dim, scale, to);
    }
    load_span<tensor::DType::kBF16>(next, 0, entry.rope_dim, to + dim);
  }
}

template <tensor::DType kType>
void load_plain_tile(const PagedEntry& entry, const std::byte* const* rows, int count, int stride, float* tile) {
  for (int t = 0; t < count; ++t) {
    load_span<kType>(rows[t], 0, entry.dim + entry.rope_dim, tile + static_cast<int64_t>(t) * stride);
  }
}

void load_tile(const PagedEntry& entry, const std::byte* const* rows, int count, int stride, float* tile) {
  with_cache_type(entry.dtype, [&]<tensor::DType kType>(TypeTag<kType>) {
    if constexpr (kIsCode<kType>)
      load_codes_tile<kType>(entry, rows, count, stride, tile);
    else
      load_plain_tile<kType>(entry, rows, count, stride, tile);
  });
}

// Weights and sums ascend over m; the keys' sum is an fma chain from 0.
void pool_keys(float* tile, int pools, int pool, int dim, int stride, const float* bias) {
  for (int j = 0; j < pools; ++j) {
    const float* rows = tile + static_cast<int64_t>(j) * pool * stride;
    for (int d = 0; d < dim; d += 16) {
      const int n = dim - d < 16 ? dim - d : 16;
      Vec top = Vec::set(-__builtin_inff());
      for (int m = 0; m < pool; ++m) {
        const Vec gate = Vec::load_n(rows + static_cast<int64_t>(m) * stride + dim + d, n);
        top = Vec::max(top, gate + Vec::load_n(bias + static_cast<int64_t>(m) * dim + d, n));
      }
      Vec key = Vec::set(0), sum = Vec::set(0);
      for (int m = 0; m < pool; ++m) {
        const float* row = rows + static_cast<int64_t>(m) * stride;
        const Vec gate = Vec::load_n(row + dim + d, n) + Vec::load_n(bias + static_cast<int64_t>(m) * dim + d, n);
        const Vec weight = math_impl::exp(gate - top);
        key = Vec::fma(weight, Vec::load_n(row + d, n), key);
        sum = sum + weight;
      }
      (key / sum).store_n(tile + static_cast<int64_t>(j) * stride + d, n);
    }
  }
}

void turn(const float* tile, int count, int dims, int stride, float* panels) {
  for (int t = 0; t < count; t += 16) {
    const int columns = count - t < 16 ? count - t : 16;
    float* panel = panels + static_cast<int64_t>(t / kTurnedPanel) * dims * kTurnedPanel + t % kTurnedPanel;
    for (int d = 0; d < dims; d += 16) {
      const int n = dims - d < 16 ? dims - d : 16;
      Vec block[16];
      for (int i = 0; i < 16; ++i) {
        block[i] = i < columns ? Vec::load(tile + static_cast<int64_t>(t + i) * stride + d) : Vec::set(0);
      }
      Vec::transpose(block);
      for (int i = 0; i < n; ++i) block[i].store(panel + static_cast<int64_t>(d + i) * kTurnedPanel);
    }
  }
}

// Products of kR rows with 16 * kC columns of a panel.
template <int kR, int kC>
inline __attribute__((always_inline)) void dot_block(const float* rows, int64_t stride, int dims, const float* panel,
                                                     Vec (&sum)[kR][kC]) {
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c] = Vec::set(0);
  }
  for (int d = 0; d < dims; ++d) {
    Vec k[kC];
    for (int c = 0; c < kC; ++c) k[c] = Vec::load(panel + static_cast<int64_t>(d) * kTurnedPanel + c * 16);
    for (int r = 0; r < kR; ++r) {
      const Vec x = Vec::set(rows[r * stride + d]);
      for (int c = 0; c < kC; ++c) sum[r][c] = Vec::fma(x, k[c], sum[r][c]);
    }
  }
}

inline __attribute__((always_inline)) void fetch_ahead(RowsAhead ahead, int begin, int count) {
  const int end = begin + count < ahead.count ? begin + count : ahead.count;
  for (int i = begin; i < end; ++i) {
    for (int64_t at = 0; at < ahead.bytes; at += 64) __builtin_prefetch(ahead.rows[i] + at, 0, 2);
  }
}

// Queries lie in the lanes and latents are spread over them, so that a unit turns its queries once and its latents
// never.
// At most 8 rows: more need more addresses than there are registers.
template <int kC, int kR = Vec::kRows * Vec::kCols / kC < 8 ? Vec::kRows * Vec::kCols / kC : 8>
inline void turned_scores(const float* panel, int dims, const float* tile, int64_t stride, int begin, int count,
                          RowsAhead ahead, float* turned) {
  int t = begin;
  for (; t + kR <= count; t += kR) {
    fetch_ahead(ahead, t, kR);
    Vec sum[kR][kC];
    dot_block<kR, kC>(tile + t * stride, stride, dims, panel, sum);
    for (int r = 0; r < kR; ++r) {
      for (int c = 0; c < kC; ++c) sum[r][c].store(turned + (t + r) * kTurnedPanel + c * 16);
    }
  }
  if constexpr (kR > 1) {
    if (t < count) {
      turned_scores<kC, kR / 2>(panel, dims, tile, stride, t, count, ahead, turned);
    }
  }
}

void latent_scores(const float* panel, int queries, int dims, const float* tile, int stride, int count, RowsAhead ahead,
                   float* turned, float* out) {
  for (int i = 0; i < queries;) {
    const int vectors = (queries - i + 15) / 16;
    if (vectors >= Vec::kCols) {
      turned_scores<Vec::kCols>(panel + i, dims, tile, stride, 0, count, ahead, turned + i);
      i += 16 * Vec::kCols;
      ahead.count = 0;  // once is enough
      continue;
    }
    if constexpr (Vec::kCols > 2) {
      if (vectors > 1) {
        if (vectors == 3)
          turned_scores<3>(panel + i, dims, tile, stride, 0, count, ahead, turned + i);
        else
          turned_scores<2>(panel + i, dims, tile, stride, 0, count, ahead, turned + i);
        break;
      }
    }
    turned_scores<1>(panel + i, dims, tile, stride, 0, count, ahead, turned + i);
    i += 16;
    ahead.count = 0;
  }
  for (int i = 0; i < queries; i += 16) {
    for (int t = 0; t < count; t += 16) {
      Vec block[16];
      for (int j = 0; j < 16; ++j) block[j] = Vec::load(turned + (t + j) * kTurnedPanel + i);
      Vec::transpose(block);
      for (int j = 0; j < 16; ++j) block[j].store(out + (i + j) * kScoreStride + t);
    }
  }
}

template <int kR, int kC>
inline __attribute__((always_inline)) void add_values(const float* weights, int begin, int end, const float* tile,
                                                      int stride, Vec (&sum)[kR][kC]) {
  for (int t = begin; t < end; ++t) {
    Vec v[kC];
    for (int c = 0; c < kC; ++c) v[c] = Vec::load(tile + static_cast<int64_t>(t) * stride + c * 16);
    for (int r = 0; r < kR; ++r) {
      const Vec w = Vec::set(weights[r * kScoreStride + t]);
      for (int c = 0; c < kC; ++c) sum[r][c] = Vec::fma(w, v[c], sum[r][c]);
    }
  }
}

// What all queries of the block see is added together; what a later one sees beyond, alone. Masked positions are never
// multiplied: a zero weight would still turn -0 into +0.
template <int kR, int kC>
inline void latent_accumulate_block(const float* weights, const int* valid, const float* alpha, const float* tile,
                                    int stride, int padded, float* o) {
  Vec sum[kR][kC];
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c] = Vec::load(o + r * padded + c * 16) * Vec::set(alpha[r]);
  }
  add_values<kR, kC>(weights, 0, valid[0], tile, stride, sum);
  for (int r = 0; r < kR; ++r) {
    for (int c = 0; c < kC; ++c) sum[r][c].store(o + r * padded + c * 16);
  }
  for (int r = 1; r < kR; ++r) {
    if (valid[r] == valid[0]) continue;
    Vec one[1][kC];
    for (int c = 0; c < kC; ++c) one[0][c] = Vec::load(o + r * padded + c * 16);
    add_values<1, kC>(weights + r * kScoreStride, valid[0], valid[r], tile, stride, one);
    for (int c = 0; c < kC; ++c) one[0][c].store(o + r * padded + c * 16);
  }
}

template <int kC, int kR = Vec::kRows>
inline void latent_accumulate_rows(const float* weights, const int* valid, const float* alpha, int queries,
                                   const float* tile, int stride, int padded, float* o) {
  int i = 0;
  for (; i + kR <= queries; i += kR) {
    latent_accumulate_block<kR, kC>(weights + i * kScoreStride, valid + i, alpha + i, tile, stride, padded,
                                    o + static_cast<int64_t>(i) * padded);
  }
  if constexpr (kR > 1) {
    if (i < queries) {
      latent_accumulate_rows<kC, kR - 1>(weights + i * kScoreStride, valid + i, alpha + i, queries - i, tile, stride,
                                         padded, o + static_cast<int64_t>(i) * padded);
    }
  }
}

void latent_accumulate(const float* weights, const int* valid, const float* alpha, int queries, const float* tile,
                       int stride, int padded, float* o) {
  int d = 0;
  for (; d + 16 * Vec::kCols <= padded; d += 16 * Vec::kCols) {
    latent_accumulate_rows<Vec::kCols>(weights, valid, alpha, queries, tile + d, stride, padded, o + d);
  }
  for (; d < padded; d += 16) {
    latent_accumulate_rows<1>(weights, valid, alpha, queries, tile + d, stride, padded, o + d);
  }
}

template <int kC, int kR = Vec::kRows>
inline __attribute__((always_inline)) void index_heads(const float* q, const float* w, int heads, int dim,
                                                       const float* panel, Vec (&score)[kC]) {
  int h = 0;
  for (; h + kR <= heads; h += kR) {
    Vec sum[kR][kC];
    dot_block<kR, kC>(q + static_cast<int64_t>(h) * dim, dim, dim, panel, sum);
    for (int r = 0; r < kR; ++r) {
      for (int c = 0; c < kC; ++c) {
        score[c] = Vec::fma(Vec::set(w[h + r]), Vec::max(sum[r][c], Vec::set(0)), score[c]);
      }
    }
  }
  if constexpr (kR > 1) {
    if (h < heads) index_heads<kC, kR - 1>(q + static_cast<int64_t>(h) * dim, w + h, heads - h, dim, panel, score);
  }
}

template <int kC>
void index_columns(const float* q, const float* w, int heads, int dim, const float* panel, int count, float* out) {
  Vec score[kC];
  for (int c = 0; c < kC; ++c) score[c] = Vec::set(0);
  index_heads<kC>(q, w, heads, dim, panel, score);
  for (int c = 0; c < kC; ++c) {
    const int n = count - c * 16;
    if (n > 0) score[c].store_n(out + c * 16, n < 16 ? n : 16);
  }
}

void index_scores(const float* q, const float* w, int heads, int dim, const float* panels, int count, float* out) {
  for (int t = 0; t < count;) {
    const float* panel = panels + static_cast<int64_t>(t / kTurnedPanel) * dim * kTurnedPanel + t % kTurnedPanel;
    if (count - t > 16 * (Vec::kCols - 1)) {
      index_columns<Vec::kCols>(q, w, heads, dim, panel, count - t, out + t);
      t += 16 * Vec::kCols;
    } else {
      index_columns<1>(q, w, heads, dim, panel, count - t, out + t);
      t += 16;
    }
  }
}

void add_index_heads(const float* products, const float* w, int heads, bool first, int count, float* out) {
  for (int t = 0; t < count; t += 16) {
    const int n = count - t < 16 ? count - t : 16;
    Vec score = first ? Vec::set(0) : Vec::load_n(out + t, n);
    for (int h = 0; h < heads; ++h) {
      const Vec product = Vec::load(products + h * kScoreStride + t);
      score = Vec::fma(Vec::set(w[h]), Vec::max(product, Vec::set(0)), score);
    }
    score.store_n(out + t, n);
  }
}

constexpr LatentOps kLatentOps = {
    .store_latent = store_latent,
    .store_index_key = store_index_key,
    .load_tile = load_tile,
    .turn = turn,
    .scores = latent_scores,
    .accumulate = latent_accumulate,
    .pool_keys = pool_keys,
    .index_scores = index_scores,
    .add_index_heads = add_index_heads,
};

}  // namespace
}  // namespace baton::kernels
