#include "transport/shm/hash_copy.h"

#include <emmintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checks.h"
#include "transport/shm/hash_copy_steps.h"

namespace baton::transport {

uint64_t hash_copy_portable(std::span<const CopyRun> runs, const std::byte* next) {
  return hash_copy_by(runs, next, [](const std::byte* from, std::byte* to, std::byte* scratch) {
    for (size_t at = 0; at < kStripe; at += 16) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
      _mm_store_si128(reinterpret_cast<__m128i*>(scratch + at), value);
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), value);
    }
  });
}

namespace {

// What is left of hash_copy without its hash, to measure what that costs.
uint64_t plain_copy(std::span<const CopyRun> runs, const std::byte* /*next*/) {
  for (const auto& run : runs) {
    if (run.to == nullptr) continue;
    size_t at = 0;
    const bool aligned = reinterpret_cast<uintptr_t>(run.to) % 16 == 0;
    for (; aligned && at + 16 <= run.bytes; at += 16) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(run.from + at));
      _mm_stream_si128(reinterpret_cast<__m128i*>(run.to + at), value);
    }
    std::memcpy(run.to + at, run.from + at, run.bytes - at);
  }
  return 0;
}

}  // namespace

HashCopy hash_copy_for(tensor::Isa isa) {
  if (!checks_on()) return plain_copy;
  switch (isa) {
    case tensor::Isa::kAvx512:
      return hash_copy_avx512;
    case tensor::Isa::kAvx2:
      return hash_copy_avx2;
    case tensor::Isa::kPortable:
      break;
  }
  return hash_copy_portable;
}

void store_fence() { _mm_sfence(); }

}  // namespace baton::transport
