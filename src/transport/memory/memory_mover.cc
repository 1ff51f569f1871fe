#include "transport/memory/memory_mover.h"

#include <cstring>

#include "base/hash.h"

namespace baton::transport {

Result<void> MemoryMover::move(const Moves& moves, std::span<const std::byte> source,
                               std::span<std::byte> destination) {
  BATON_TRY(check_inside(moves, source.size(), destination.size()));
  size_t next = 0;
  for (size_t u = 0; u < moves.units.size(); ++u) {
    Xxh3Stream hash;
    for (uint32_t r = 0; r < moves.units[u].run_count; ++r, ++next) {
      const Run& run = moves.runs[next];
      const auto from = source.subspan(static_cast<size_t>(run.from), static_cast<size_t>(run.bytes));
      if (run.to == kNotStored) {
        hash.update(from);
        continue;
      }
      const auto stored = destination.subspan(static_cast<size_t>(run.to), from.size());
      if (!from.empty()) std::memcpy(stored.data(), from.data(), from.size());
      if (spoil_) spoil_(u, r, stored);
      hash.update(stored);
    }
    if (hash.digest() != moves.units[u].checksum) return fail(Code::kDataLoss, "KV unit {} fails its checksum", u);
  }
  return {};
}

}  // namespace baton::transport
