// Two open-addressing tables for the hot path of BPE. Filled once, then read by any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace baton::text {

// A pair of symbols to the rank of its merge and the symbol it becomes. 16 bytes an entry, at most half full, so that
// a miss (the usual answer) costs one or two cache lines.
class MergeMap {
 public:
  struct Merge {
    uint32_t rank;
    TokenId result;
  };
  explicit MergeMap(size_t count = 0) : slots_(std::bit_ceil(count * 2 + 16), Slot{kEmpty, {}}) {}

  // A repeated pair keeps its last rank.
  void insert(TokenId left, TokenId right, Merge merge) {
    const uint64_t key = pack(left, right);
    size_t at = home(key);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, merge};
  }
  const Merge* find(TokenId left, TokenId right) const {
    const uint64_t key = pack(left, right);
    for (size_t at = home(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return &slots_[at].merge;
      if (slots_[at].key == kEmpty) return nullptr;
    }
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t pack(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t home(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) & (slots_.size() - 1);
  }
  std::vector<Slot> slots_;
};

// Byte strings to ids, over strings that the owner keeps (and does not move) while the map lives.
class WordMap {
 public:
  explicit WordMap(size_t count = 0) : slots_(std::bit_ceil(count * 2 + 16)) {}

  // The first insertion of a string stays.
  void insert(std::string_view word, TokenId id) {
    const uint32_t hash = hash_of(word);
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].id >= 0) {
      if (slots_[at].hash == hash && slots_[at].word == word) return;
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {word, hash, id};
  }
  // -1 if absent.
  TokenId find(std::string_view word) const {
    const uint32_t hash = hash_of(word);
    for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return -1;
      if (slot.hash == hash && slot.word == word) return slot.id;
    }
  }

 private:
  struct Slot {
    std::string_view word;
    uint32_t hash = 0;
    TokenId id = -1;
  };
  static uint32_t hash_of(std::string_view word) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ word.size();
    const char* at = word.data();
    size_t left = word.size();
    for (; left >= 8; left -= 8, at += 8) {
      uint64_t chunk;
      std::memcpy(&chunk, at, 8);
      hash = mix(hash ^ chunk);
    }
    uint64_t tail = 0;
    std::memcpy(&tail, at, left);
    return static_cast<uint32_t>(mix(hash ^ tail) >> 16);
  }
  static uint64_t mix(uint64_t x) {
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
  }
  std::vector<Slot> slots_;
};

}  // namespace baton::text
