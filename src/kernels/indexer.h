// The lightning indexer of DeepSeek sparse attention: scores every position of a row's context and keeps the best.
//   I[t, s] = sum over h of w[t, h] * max(0, q[t, h] . k[s]),  s <= t     (DeepSeek-V3.2-Exp, section 2.1)
//
// Arithmetic, the same bits on every instruction set: the product is an fma chain over the dimensions, the score an fma
// chain over the heads, both ascending from 0, in fp32. Queries stay fp32 whatever the key cache holds; keys are read
// as stored. So a score depends on the row and the key alone, never on chunk, batch, blocks or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/compute_pool.h"
#include "kernels/kv_view.h"
#include "tensor/cpu.h"

namespace baton::kernels {

struct IndexerArgs {
  TokenCacheView cache;  // of kind kIndexKeys
  int heads = 0;
  const float* q = nullptr;        // [rows, heads, dim], rotated
  int64_t q_stride = 0;            // elements per row
  const float* weights = nullptr;  // [rows, heads], all factors applied
  int64_t weights_stride = 0;
  int pool = 1;                      // tokens whose keys are pooled: 1 (none), 2, 4, 8 or 16
  const float* pool_bias = nullptr;  // [pool, dim]
  tensor::Isa isa = tensor::Isa::kPortable;
};

// scores: [rows of all slices, one slice after the other][scores_stride]; writes positions 0 .. own of each row, and
// nothing behind them (with pools: the pools that end at or before it). Threads split over (slice, row block,
// positions). The step's own keys must be written before. scratch: index_scores_scratch_bytes.
void index_scores(const IndexerArgs& args, std::span<const SequenceSlice> slices, float* scores, int64_t scores_stride,
                  std::span<std::byte> scratch, ComputePool& pool);
// dim: entry.dim, here and below.
size_t index_scores_scratch_bytes(int dim, int threads);

// The top_k largest of scores[0 .. count), equal ones to the lower position, in ascending position; all if count <=
// top_k. -0 equals 0; NaN is below everything. Returns how many were written. Pure; no scratch.
int select_top_k(const float* scores, int64_t count, int top_k, int32_t* selected);

struct SelectArgs {
  IndexerArgs indexer;
  int top_k = 0;                      // positions, a multiple of pool
  int32_t* selected = nullptr;        // [rows, selected_stride]
  int64_t selected_stride = 0;        // at least top_k + pool - 1
  int32_t* selected_count = nullptr;  // [rows]: min(top_k, position + 1); pools: and those behind the last whole one
};

// index_scores and select_top_k for all rows of a step, by groups of rows whose scores fit the scratch. Rows that see
// at most top_k positions select all of them, unscored. The result is what latent_attention takes. max_positions: no
// row of the step may lie at or beyond it (the model's length); it sizes the scratch.
void index_select(const SelectArgs& args, std::span<const SequenceSlice> slices, int64_t max_positions,
                  std::span<std::byte> scratch, ComputePool& pool);
size_t index_select_scratch_bytes(int dim, int64_t max_positions, int threads);

// The same for a few rows over a context that is spread over ranks (768 | block size), in two steps with a barrier
// between: each rank scores the positions it holds and leaves its best of them, positions and scores, in memory that
// the ranks share; then the best of all candidates are chosen, of the rows that one wants. The result is
// index_select's.
struct IndexCandidates {
  std::byte* data = nullptr;  // index_candidates_bytes, 64-byte aligned
  int ranks = 1;              // of the split context
  int top_k = 0;              // of SelectArgs
};
size_t index_candidates_bytes(int64_t rows, int ranks, int top_k);

// Row i of the candidates is the i-th row of the slices, one slice after the other. args.selected is not used. scratch:
// index_candidates_scratch_bytes.
void index_candidates(const SelectArgs& args, std::span<const SequenceSlice> slices, int64_t max_positions,
                      const IndexCandidates& candidates, std::span<std::byte> scratch, ComputePool& pool);
// Of rows [first_row, first_row + row_count) of the candidates; writes args.selected and selected_count of these.
struct CandidateRows {
  int64_t first = 0;
  int64_t count = 0;
};
void select_candidates(const SelectArgs& args, std::span<const SequenceSlice> slices, CandidateRows rows,
                       const IndexCandidates& candidates, std::span<std::byte> scratch, ComputePool& pool);
// Enough for either step.
size_t index_candidates_scratch_bytes(int dim, int64_t max_positions, int ranks, int block_size, int top_k,
                                      int threads);

}  // namespace baton::kernels
