// The loop shared by the versions of hash_copy. Included after xxhash.h with XXH_INLINE_ALL, so that the hash is
// compiled for the including file's instruction set.
#pragma once

#include <algorithm>
#include <cstring>

#include "transport/shm/hash_copy.h"

namespace baton::transport {
namespace {

inline constexpr size_t kStepBytes = 4096;

inline void prefetch_step(const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 0);
}

// copy(from, to, scratch, bytes): what it stores at `to` and at `scratch` comes from one load.
template <typename Copy>
uint64_t hash_copy_steps(std::span<const CopyRun> runs, Copy copy) {
  alignas(64) std::byte scratch[kStepBytes];
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (const CopyRun& run : runs) {
    if (run.to == nullptr) {
      XXH3_64bits_update(&state, run.from, run.bytes);
      continue;
    }
    for (size_t at = 0; at < run.bytes; at += kStepBytes) {
      const size_t bytes = std::min(kStepBytes, run.bytes - at);
      copy(run.from + at, run.to + at, scratch, bytes);
      // The next step is on its way while this one is hashed.
      if (at + bytes < run.bytes) prefetch_step(run.from + at + bytes, std::min(kStepBytes, run.bytes - at - bytes));
      XXH3_64bits_update(&state, scratch, bytes);
    }
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace
}  // namespace baton::transport
