// Moves checksum units from a source (a peer's memory, or bytes just received) into the caller's arena and verifies
// what it stored. Owned by one thread; blocks it for as long as the copy takes, so callers give it slices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace baton::transport {

// One unit: its keys, then its values. Offsets are bytes from the start of source and destination.
struct UnitMove {
  struct Run {
    int64_t from = 0;
    int64_t to = 0;
    int64_t bytes = 0;
  };
  std::array<Run, 2> runs;
  uint64_t checksum = 0;  // XXH3-64 of both runs' bytes
};

class Mover {
 public:
  virtual ~Mover() = default;
  // Stores every unit. kDataLoss names the first whose bytes don't match; what was stored must then not be used.
  // kOutOfRange, before anything is stored, when a run reaches outside source or destination.
  virtual Result<void> move(std::span<const UnitMove> units, std::span<const std::byte> source,
                            std::span<std::byte> destination) = 0;
};

inline Result<void> check_inside(std::span<const UnitMove> units, size_t source_bytes, size_t destination_bytes) {
  const auto inside = [](int64_t offset, int64_t bytes, size_t size) {
    return offset >= 0 && bytes >= 0 && static_cast<uint64_t>(offset) <= size &&
           static_cast<uint64_t>(bytes) <= size - static_cast<uint64_t>(offset);
  };
  for (const UnitMove& unit : units) {
    for (const auto& run : unit.runs) {
      if (!inside(run.from, run.bytes, source_bytes) || !inside(run.to, run.bytes, destination_bytes)) {
        return fail(Code::kOutOfRange, "a KV unit of {} bytes from {} to {} lies outside its arena", run.bytes,
                    run.from, run.to);
      }
    }
  }
  return {};
}

}  // namespace baton::transport
