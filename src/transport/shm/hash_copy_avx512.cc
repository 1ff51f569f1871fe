#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "transport/shm/hash_copy_steps.h"

namespace baton::transport {
namespace {

void copy_stripe(const std::byte* from, std::byte* to, std::byte* scratch) {
  const __m512i value = _mm512_loadu_si512(from);
  _mm512_store_si512(scratch, value);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
}

}  // namespace

uint64_t hash_copy_avx512(std::span<const CopyRun> runs, const std::byte* next) {
  return hash_copy_by(runs, next, copy_stripe);
}

}  // namespace baton::transport
