// Moves checksum units from a source (a peer's memory, or bytes just received) into the caller's arena and verifies
// what it stored. Owned by one thread; blocks it for as long as the copy takes, so callers give it slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace baton::transport {

// Offsets are bytes from the start of source and destination.
struct Run {
  int64_t from = 0;
  int64_t to = 0;  // kNotStored: read and checked with its unit, but not wanted here
  int64_t bytes = 0;
};
inline constexpr int64_t kNotStored = -1;

// The next run_count runs: all bytes of a unit, its keys first, then its values.
struct UnitMove {
  uint32_t run_count = 0;
  uint64_t checksum = 0;  // XXH3-64 of the runs' bytes
};

struct Moves {
  std::vector<UnitMove> units;
  std::vector<Run> runs;

  void clear() {
    units.clear();
    runs.clear();
  }
};

class Mover {
 public:
  virtual ~Mover() = default;
  // Stores every unit. kDataLoss names the first whose bytes don't match; what was stored must then not be used.
  // kOutOfRange, before anything is stored, when a run reaches outside source or destination.
  virtual Result<void> move(const Moves& moves, std::span<const std::byte> source,
                            std::span<std::byte> destination) = 0;
};

inline Result<void> check_inside(const Moves& moves, size_t source_bytes, size_t destination_bytes) {
  const auto inside = [](int64_t offset, int64_t bytes, size_t size) {
    return offset >= 0 && bytes >= 0 && static_cast<uint64_t>(offset) <= size &&
           static_cast<uint64_t>(bytes) <= size - static_cast<uint64_t>(offset);
  };
  for (const Run& run : moves.runs) {
    if (!inside(run.from, run.bytes, source_bytes) ||
        (run.to != kNotStored && !inside(run.to, run.bytes, destination_bytes))) {
      return fail(Code::kOutOfRange, "a KV unit of {} bytes from {} to {} lies outside its arena", run.bytes, run.from,
                  run.to);
    }
  }
  return {};
}

}  // namespace baton::transport
