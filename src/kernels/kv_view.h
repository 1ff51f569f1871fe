// What a kernel may know of a sequence's memory: pointers and strides. Built by the engine from the cache's geometry.
//
// Two kinds of memory. Paged entries are kept per token: a block holds, one after the other, what every entry keeps for
// block_size tokens, so that one block table serves them all. Recurrent state is kept per sequence, in a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace baton::kernels {

enum class PagedKind : uint8_t {
  kKeysValues,  // [k|v][head][token][dim]
  kLatent,      // [token][latent | rotary key]: multi-head latent attention
  kIndexKeys,   // [token][key]: the lightning indexer
};

// What one layer keeps per token. A layer may have two entries: a latent and an index key.
struct PagedEntry {
  PagedKind kind = PagedKind::kKeysValues;
  int heads = 1;     // KV heads; 1 of the other kinds
  int dim = 0;       // of a head; the rank of a latent; of an index key
  int rope_dim = 0;  // latents: of the rotary key beside it
  tensor::DType dtype = tensor::DType::kBF16;
  bool operator==(const PagedEntry&) const = default;
};

// A context that is spread over ranks: position t is held by rank (t / block_size) mod size, and entry i of a block
// table is the block that holds, on rank c, positions [(i size + c) block_size, (i size + c + 1) block_size).
//
// `context_bases`, as the views below have it: one pointer a rank, [size], all readable; null with size 1. What a view
// has at `base` on this rank is at context_bases[c] + context_offset on rank c.
struct ContextSplit {
  int size = 1;
  int rank = 0;
  bool holds(int64_t position, int block_size) const { return size == 1 || position / block_size % size == rank; }
  // The block at place p (positions [p block_size, (p + 1) block_size)) of a sequence: on whose memory, and its number.
  std::byte* base_of(int64_t place, std::byte* base, std::byte* const* bases, int64_t offset) const {
    return size == 1 ? base : bases[place % size] + offset;
  }
  int64_t block_number(const int32_t* block_table, int64_t place) const {
    return block_table[size == 1 ? place : place / size];
  }
  bool operator==(const ContextSplit&) const = default;
};

inline constexpr int kLatentScaleGroup = 128;  // values of a quantised latent that share a scale

// Bytes of one token: of a head's keys (or of its values); of a latent with its rotary key; of an index key.
//   f32, f16, bf16: the plain elements.
//   fp8, i8  latent: rank codes, then an fp32 scale per 128 of them, then the rotary key in bf16
//                    (rank 512, rotary 64: 512 + 16 + 128 = 656)
//            index key: dim codes, then the scale: fp32 with fp8 (132), f16 with i8 (130)
//            keys, values: dim codes, then an fp32 scale
int64_t entry_token_bytes(const PagedEntry& entry);
// Of block_size tokens: all heads, keys and values.
int64_t entry_block_bytes(const PagedEntry& entry, int block_size);

// Paged keys and values of one GQA group, arena layout [block][layer][k|v][kv head][token][dim].
struct PagedKvView {
  std::byte* base = nullptr;
  tensor::DType dtype = tensor::DType::kBF16;  // f32, f16, bf16, fp8, i8
  int block_size = 0;                          // tokens per block
  int kv_heads = 0;
  int head_dim = 0;
  int64_t block_stride = 0;  // bytes
  int64_t layer_stride = 0;  // bytes
  int64_t kv_stride = 0;     // bytes from keys to values
  int64_t head_stride = 0;   // bytes
  ContextSplit context;
  std::byte* const* context_bases = nullptr;
  int64_t context_offset = 0;

  // First key (kv = 0) or value (kv = 1) of a head of a layer in a block.
  std::byte* at(int64_t block, int64_t layer, int kv, int64_t head) const {
    return base + block * block_stride + layer * layer_stride + kv * kv_stride + head * head_stride;
  }
  // The same of the block at a place of a sequence, whichever rank holds it.
  const std::byte* at_place(const int32_t* block_table, int64_t place, int64_t layer, int kv, int64_t head) const {
    return context.base_of(place, base, context_bases, context_offset) +
           context.block_number(block_table, place) * block_stride + layer * layer_stride + kv * kv_stride +
           head * head_stride;
  }
};

// One value per token: the latents, or the index keys, of one layer.
struct TokenCacheView {
  std::byte* base = nullptr;  // the entry in block 0
  PagedEntry entry;
  int block_size = 0;
  int64_t block_stride = 0;  // bytes
  int64_t token_bytes = 0;   // entry_token_bytes(entry)
  ContextSplit context;
  std::byte* const* context_bases = nullptr;
  int64_t context_offset = 0;

  std::byte* block(int64_t block) const { return base + block * block_stride; }
  // The block at a place of a sequence, whichever rank holds it.
  const std::byte* block_at(const int32_t* block_table, int64_t place) const {
    return context.base_of(place, base, context_bases, context_offset) +
           context.block_number(block_table, place) * block_stride;
  }
};

// Recurrent state of one layer: slot s, head h at base + s * slot_stride + h * head_stride.
struct StateView {
  std::byte* base = nullptr;
  int64_t slot_stride = 0;
  int64_t head_stride = 0;

  std::byte* at(int64_t slot, int64_t head) const { return base + slot * slot_stride + head * head_stride; }
};

// All of a model's memory for one step.
struct CacheView {
  std::byte* blocks = nullptr;
  int block_size = 0;                      // tokens
  int64_t block_stride = 0;                // bytes
  std::span<const PagedEntry> entries;     // the model's, with their dtypes
  std::span<const int64_t> entry_offsets;  // bytes from a block's start
  ContextSplit context;
  std::span<std::byte* const> context_blocks;                  // with a split context: `blocks` of every context rank
  std::byte* states = nullptr;                                 // [slot][layer][head]
  int64_t slot_stride = 0, layer_stride = 0, head_stride = 0;  // bytes

  PagedKvView keys_values(int entry) const;
  TokenCacheView tokens(int entry) const;  // kLatent, kIndexKeys
  StateView state(int layer) const {
    return {.base = states + layer * layer_stride, .slot_stride = slot_stride, .head_stride = head_stride};
  }
};

// The rows of one sequence inside a step. Row i of the slice has position context_len + i.
struct SequenceSlice {
  const int32_t* block_table = nullptr;  // blocks holding positions [0, context_len + row_count), see ContextSplit
  int64_t context_len = 0;               // tokens in the cache before this step
  int row_begin = 0;                     // first row of the step's batch
  int row_count = 0;
  // The sequence's own state, that of its first context_len tokens; after the step, of all. At context_len 0 the slot
  // may hold anything: the state starts from zero. -1: the model keeps none.
  int32_t state_slot = -1;
};

}  // namespace baton::kernels
