#include "wire/prompt_digest.h"

#include <cstring>

#include "base/hash.h"

namespace baton::wire {

PromptDigest prompt_digest(std::span<const int32_t> tokens) {
  const Sha256 hash = sha256(std::as_bytes(tokens));
  PromptDigest digest;
  std::memcpy(digest.data(), hash.data(), sizeof(digest));
  return digest;
}

}  // namespace baton::wire
