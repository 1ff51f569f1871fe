#include "transport/shm/shm_mover.h"

namespace baton::transport {

Result<void> ShmMover::move(std::span<const UnitMove> units, std::span<const std::byte> source,
                            std::span<std::byte> destination) {
  BATON_TRY(check_inside(units, source.size(), destination.size()));
  size_t bad = units.size();
  for (size_t u = 0; u < units.size() && bad == units.size(); ++u) {
    std::array<CopyRun, 2> runs;
    for (size_t r = 0; r < 2; ++r) {
      const auto& run = units[u].runs[r];
      runs[r] = {source.data() + run.from, destination.data() + run.to, static_cast<size_t>(run.bytes)};
    }
    if (hash_copy_(runs) != units[u].checksum) bad = u;
  }
  store_fence();
  if (bad < units.size()) return fail(Code::kDataLoss, "KV unit {} fails its checksum", bad);
  return {};
}

}  // namespace baton::transport
