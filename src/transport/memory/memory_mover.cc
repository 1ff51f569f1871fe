#include "transport/memory/memory_mover.h"

#include <cstring>

#include "base/hash.h"

namespace baton::transport {

Result<void> MemoryMover::move(std::span<const UnitMove> units, std::span<const std::byte> source,
                               std::span<std::byte> destination) {
  BATON_TRY(check_inside(units, source.size(), destination.size()));
  for (size_t u = 0; u < units.size(); ++u) {
    std::array<std::span<std::byte>, 2> stored;
    for (size_t r = 0; r < 2; ++r) {
      const auto& run = units[u].runs[r];
      stored[r] = destination.subspan(static_cast<size_t>(run.to), static_cast<size_t>(run.bytes));
      if (run.bytes > 0) std::memcpy(stored[r].data(), source.data() + run.from, static_cast<size_t>(run.bytes));
    }
    if (spoil_) spoil_(u, stored[0], stored[1]);
    Xxh3Stream hash;
    hash.update(stored[0]);
    hash.update(stored[1]);
    if (hash.digest() != units[u].checksum) return fail(Code::kDataLoss, "KV unit {} fails its checksum", u);
  }
  return {};
}

}  // namespace baton::transport
