// The shared memory of one process of a mesh: its bells, and a ring for what each of the others sends to it on each of
// the two paths. Others of the host map it through /proc; a memfd, so it dies with the processes.
//
// Layout, little-endian: one page of header and bells; then for path 0 and 1, for each process, ring header and bytes.
#pragma once

#include <array>
#include <string>

#include "base/byte_codec.h"
#include "parallel/net/descriptor.h"
#include "parallel/shm/bell.h"

namespace baton::parallel {

enum Path : int { kExchangePath = 0, kMessagePath = 1, kPaths = 2 };

// Positions count bytes since the beginning. Each side believes of the other's position only what can be true.
struct RingHeader {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> writer_waits;  // for room
};

// Where another process of this host finds a segment, and how it knows it again. What a mesh's members tell each other.
struct SegmentPlace {
  std::string boot_id;
  int32_t pid = 0;
  int32_t descriptor = -1;
  std::array<uint64_t, 2> nonce{};
  uint64_t ring_bytes = 0;  // a power of two

  void put(ByteWriter& writer) const;
  static SegmentPlace get(ByteReader& reader);
};

class Segment {
 public:
  // ring_bytes: a power of two. kResourceExhausted when the system has no such memory.
  static Result<Segment> create(int processes, uint64_t ring_bytes);
  // Maps another's. kUnavailable when it can't be reached from here, kMismatch when it isn't what was announced.
  static Result<Segment> map(int processes, const SegmentPlace& place);
  Segment() = default;  // maps nothing
  bool mapped() const { return base_ != nullptr; }
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  const SegmentPlace& place() const { return place_; }
  // For others to map it: only until all have.
  void close_descriptor() { descriptor_ = {}; }
  Bell& bell(int path, bool out) { return *reinterpret_cast<Bell*>(base_ + 128 + 64 * (2 * path + (out ? 1 : 0))); }
  RingHeader& ring(int path, int from) { return *reinterpret_cast<RingHeader*>(ring_base(path, from)); }
  std::byte* ring_data(int path, int from) { return ring_base(path, from) + sizeof(RingHeader); }

 private:
  std::byte* ring_base(int path, int from) const;

  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  int processes_ = 0;
  SegmentPlace place_;
  Descriptor descriptor_;
};

// Of this host's running kernel; empty where it can't be read.
std::string host_boot_id();

}  // namespace baton::parallel
