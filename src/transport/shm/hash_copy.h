// Copies bytes that another may be changing and hashes exactly what was stored, in one pass over memory.
//
// Sketch: a stripe of 64 bytes is loaded once; the register goes both to the destination (non-temporal: D will not read
// it soon, and no line is fetched to be overwritten) and to a scratch in the first-level cache, which is what gets
// hashed at once, while lines ahead are on their way. So copying and hashing overlap, and memory is the bound: with
// every length and place a multiple of 64 the pass takes as long as a plain non-temporal copy (hash_copy_bench).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/cpu.h"

namespace baton::transport {

struct CopyRun {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;  // null: hashed, not stored
  size_t bytes = 0;
};

// XXH3-64 of the runs' bytes, one after the other, as stored at `to`. Call store_fence() before the bytes are handed
// to another thread.
// next: what is likely to be read after these runs, so that it may be on its way; any address, null too.
using HashCopy = uint64_t (*)(std::span<const CopyRun> runs, const std::byte* next);

// The version for an instruction set that this machine has.
HashCopy hash_copy_for(tensor::Isa isa);
void store_fence();

// The versions themselves; use hash_copy_for.
uint64_t hash_copy_portable(std::span<const CopyRun> runs, const std::byte* next);
uint64_t hash_copy_avx2(std::span<const CopyRun> runs, const std::byte* next);
uint64_t hash_copy_avx512(std::span<const CopyRun> runs, const std::byte* next);

}  // namespace baton::transport
