// What tests of every kind of mesh do with one: each member calls it, and each byte is checked.
#pragma once

#include <string>
#include <vector>

#include "parallel/mesh.h"

namespace baton::parallel {

// Bytes that tell from whom, to whom and in which round they are.
inline std::vector<std::byte> pattern(size_t bytes, int from, int to, int round) {
  std::vector<std::byte> made(bytes);
  uint32_t value = static_cast<uint32_t>(from * 7919 + to * 104729 + round * 1299709 + 1);
  for (auto& byte : made) {
    value = value * 1664525 + 1013904223;
    byte = static_cast<std::byte>(value >> 24);
  }
  return made;
}

inline bool is_pattern(std::span<const std::byte> bytes, size_t size, int from, int to, int round) {
  const auto expected = pattern(size, from, to, round);
  return bytes.size() == size && std::equal(bytes.begin(), bytes.end(), expected.begin());
}

// Sizes from none to `largest`, uneven on purpose.
inline size_t part_bytes(int from, int to, int round, size_t largest) {
  const auto mixed = static_cast<size_t>(from * 31 + to * 17 + round * 13);
  if (mixed % 5 == 0) return 0;
  return 1 + (mixed * 2654435761U) % largest;
}

// "" or what went wrong. Rounds of exchanges, messages around a ring and broadcasts from each root.
inline std::string use_everything(Mesh& mesh, int rounds, size_t largest = 5000) {
  const int size = mesh.size(), rank = mesh.rank();
  std::vector<MessageBytes> from;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::byte>> parts;
    for (int to = 0; to < size; ++to) parts.push_back(pattern(part_bytes(rank, to, round, largest), rank, to, round));
    const std::vector<Mesh::Bytes> to_each(parts.begin(), parts.end());
    if (auto done = mesh.exchange(to_each, from); !done) return done.error().to_string();
    for (int p = 0; p < size; ++p) {
      if (!is_pattern(from[static_cast<size_t>(p)].span(), part_bytes(p, rank, round, largest), p, rank, round)) {
        return fmt::format("exchange {}: wrong bytes from {}", round, p);
      }
    }
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const size_t bytes = part_bytes(rank, next, round, largest), expected = part_bytes(before, rank, round, largest);
    for (const uint32_t tag : {5U, 6U}) {
      if (auto sent = mesh.send(next, tag, pattern(bytes, rank, next, round + static_cast<int>(tag))); !sent) {
        return sent.error().to_string();
      }
    }
    for (const uint32_t tag : {6U, 5U}) {
      auto got = mesh.receive(before, tag);
      if (!got) return got.error().to_string();
      if (!is_pattern(got->span(), expected, before, rank, round + static_cast<int>(tag))) {
        return fmt::format("message {} of round {}: wrong bytes from {}", tag, round, before);
      }
    }
    const int root = round % size;
    const auto word = pattern(part_bytes(root, 0, round, largest), root, 0, round);
    auto heard = mesh.broadcast(root, rank == root ? Mesh::Bytes(word) : Mesh::Bytes());
    if (!heard) return heard.error().to_string();
    if (!is_pattern(heard->span(), word.size(), root, 0, round)) return "broadcast: wrong bytes";
  }
  return {};
}

}  // namespace baton::parallel
