#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "transport/shm/hash_copy_steps.h"

namespace baton::transport {
namespace {

void copy_step(const std::byte* from, std::byte* to, std::byte* scratch, size_t bytes) {
  size_t at = 0;
  if (reinterpret_cast<uintptr_t>(to) % 64 == 0) {
    for (; at + 64 <= bytes; at += 64) {
      const __m512i value = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from + at));
      _mm512_store_si512(reinterpret_cast<__m512i*>(scratch + at), value);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), value);
    }
  }
  std::memcpy(scratch + at, from + at, bytes - at);
  std::memcpy(to + at, scratch + at, bytes - at);
}

}  // namespace

uint64_t hash_copy_avx512(std::span<const CopyRun> runs) { return hash_copy_steps(runs, copy_step); }

}  // namespace baton::transport
