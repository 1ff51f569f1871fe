// Hashes: XXH3 for checksums (fast, not adversarial), SHA-256 for identity of prefix blocks and models.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace baton {

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed = 0);

// XXH3-64 over pieces. One thread.
class Xxh3Stream {
 public:
  explicit Xxh3Stream(uint64_t seed = 0);
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  void* state_;
};

using Sha256 = std::array<std::byte, 32>;
Sha256 sha256(std::span<const std::byte> bytes);
// Lower-case hex.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace baton
