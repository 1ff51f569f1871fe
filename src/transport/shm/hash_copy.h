// Copies bytes that another may be changing and hashes exactly what was stored, in one pass over memory.
//
// Sketch: a 4 KB step is loaded once; each register goes both to the destination (non-temporal: D will not read it
// soon, and no line is fetched to be overwritten) and to a scratch in L1, which is what gets hashed. Bytes per byte
// copied: one read and one write of memory; XXH3 runs from L1 at 20 to 60 GB/s, so memory is the bound.
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
using HashCopy = uint64_t (*)(std::span<const CopyRun> runs);

// The version for an instruction set that this machine has.
HashCopy hash_copy_for(tensor::Isa isa);
void store_fence();

// The versions themselves; use hash_copy_for.
uint64_t hash_copy_portable(std::span<const CopyRun> runs);
uint64_t hash_copy_avx2(std::span<const CopyRun> runs);
uint64_t hash_copy_avx512(std::span<const CopyRun> runs);

}  // namespace baton::transport
