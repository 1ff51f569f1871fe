#include "base/hash.h"

#include "base/checks.h"

#include <openssl/sha.h>
#include <xxhash.h>

#include "base/check.h"

namespace baton {

bool checks_on() {
#ifdef BATON_WITHOUT_CHECKS
  return false;
#else
  return true;
#endif
}

uint64_t checked_hash(std::span<const std::byte> bytes, uint64_t seed) {
  return checks_on() ? xxh3_64(bytes, seed) : 0;
}

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Xxh3Stream::Xxh3Stream(uint64_t seed) : state_(XXH3_createState()) {
  BATON_CHECK(state_ != nullptr);
  XXH3_64bits_reset_withSeed(static_cast<XXH3_state_t*>(state_), seed);
}
Xxh3Stream::~Xxh3Stream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Xxh3Stream::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
uint64_t Xxh3Stream::digest() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)); }

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256 digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    text.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return text;
}

}  // namespace baton
