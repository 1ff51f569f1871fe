// The pieces of latent attention and of the indexer that depend on the instruction set. Internal to this room.
//
// Arithmetic, the same bits on every instruction set: that of attention_ops.h with key = [latent | rotary key] and
// value = latent; an element is read as stored (cache_codec_impl.h). The indexer's is in indexer.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_view.h"
#include "tensor/cpu.h"

namespace baton::kernels {

inline constexpr int kTurnedPanel = 64;  // columns of a panel of turned rows, all forms alike

// Rows that are needed next, for the second-level cache.
struct RowsAhead {
  const std::byte* const* rows;
  int count;
  int64_t bytes;  // of a row
};

struct LatentOps {
  // One token into its place in the cache. rope: [rope_dim].
  void (*store_latent)(const PagedEntry& entry, const float* latent, const float* rope, std::byte* dst);
  void (*store_index_key)(const PagedEntry& entry, const float* key, std::byte* dst);
  // tile: [count][stride] floats, dim + rope_dim of them per token, as stored; the rest of a row is not defined.
  // stride: tile_stride(entry).
  void (*load_tile)(const PagedEntry& entry, const std::byte* const* rows, int count, int stride, float* tile);
  // panels: [ceil(count / 64)][dims][64], row t of the tile in column t; columns from `count` up to a multiple of 16
  // are zero.
  void (*turn)(const float* tile, int count, int dims, int stride, float* panels);
  // scores: [64][128], query by position. panel: [dims][64], at most 64 turned queries; tile as above, `count` rows.
  // turned: [128][64] of scratch. Fetches the rows ahead meanwhile.
  void (*scores)(const float* panel, int queries, int dims, const float* tile, int stride, int count, RowsAhead ahead,
                 float* turned, float* scores);
  // o: [queries][padded]; valid[i] positions for query i, ascending over i; padded a multiple of 16.
  void (*accumulate)(const float* weights, const int* valid, const float* alpha, int queries, const float* tile,
                     int stride, int padded, float* o);
  // Pools of a tile's [key | gate] rows, in place: row j becomes, for each dimension d < dim, with g(m) = gate[d] of
  // row j * pool + m + bias[m][d]:  sum over m of e^(g(m) - max g) * key(m)[d], over the sum of the weights.
  void (*pool_keys)(float* tile, int pools, int pool, int dim, int stride, const float* bias);
  // out[t] = sum over h of w[h] * max(0, q[h] . key t), t < count. q: [heads][dim].
  void (*index_scores)(const float* q, const float* w, int heads, int dim, const float* panels, int count, float* out);
  // The last part of it, from what `scores` made: out[t] += the same sum over `heads` rows of products, the first onto
  // 0 if `first`.
  void (*add_index_heads)(const float* products, const float* w, int heads, bool first, int count, float* out);
};
extern const LatentOps kLatentPortable;
extern const LatentOps kLatentAvx2;
extern const LatentOps kLatentAvx512;

const LatentOps& latent_ops(tensor::Isa isa);

// Floats of a tile's row: room for both parts rounded up to 16, and an odd number of cache lines, so that a column of
// the tile does not fall into a few sets of the first-level cache.
inline int tile_stride(const PagedEntry& entry) {
  const int vectors = (entry.dim + 15) / 16 + (entry.rope_dim + 15) / 16;
  return (vectors | 1) * 16;
}

}  // namespace baton::kernels
