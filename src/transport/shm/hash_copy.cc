#include "transport/shm/hash_copy.h"

#include <emmintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "transport/shm/hash_copy_steps.h"

namespace baton::transport {

uint64_t hash_copy_portable(std::span<const CopyRun> runs) {
  return hash_copy_steps(runs, [](const std::byte* from, std::byte* to, std::byte* scratch, size_t bytes) {
    std::memcpy(scratch, from, bytes);
    std::memcpy(to, scratch, bytes);
  });
}

HashCopy hash_copy_for(tensor::Isa isa) {
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
