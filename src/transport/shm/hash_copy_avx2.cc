#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "transport/shm/hash_copy_steps.h"

namespace baton::transport {
namespace {

void copy_step(const std::byte* from, std::byte* to, std::byte* scratch, size_t bytes) {
  size_t at = 0;
  if (reinterpret_cast<uintptr_t>(to) % 32 == 0) {
    for (; at + 32 <= bytes; at += 32) {
      const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      _mm256_store_si256(reinterpret_cast<__m256i*>(scratch + at), value);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), value);
    }
  }
  std::memcpy(scratch + at, from + at, bytes - at);
  std::memcpy(to + at, scratch + at, bytes - at);
}

}  // namespace

uint64_t hash_copy_avx2(std::span<const CopyRun> runs) { return hash_copy_steps(runs, copy_step); }

}  // namespace baton::transport
