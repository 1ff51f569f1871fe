#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "transport/shm/hash_copy_steps.h"

namespace baton::transport {
namespace {

void copy_stripe(const std::byte* from, std::byte* to, std::byte* scratch) {
  for (size_t at = 0; at < kStripe; at += 32) {
    const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    _mm256_store_si256(reinterpret_cast<__m256i*>(scratch + at), value);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), value);
  }
}

}  // namespace

uint64_t hash_copy_avx2(std::span<const CopyRun> runs, const std::byte* next) {
  return hash_copy_by(runs, next, copy_stripe);
}

}  // namespace baton::transport
