#include "transport/shm/shm_mover.h"

namespace baton::transport {

Result<void> ShmMover::move(const Moves& moves, std::span<const std::byte> source, std::span<std::byte> destination) {
  BATON_TRY(check_inside(moves, source.size(), destination.size()));
  const auto& units = moves.units;
  size_t bad = units.size(), next = 0;
  for (size_t u = 0; u < units.size() && bad == units.size(); ++u) {
    copies_.clear();
    for (uint32_t r = 0; r < units[u].run_count; ++r, ++next) {
      const Run& run = moves.runs[next];
      copies_.push_back({source.data() + run.from, run.to == kNotStored ? nullptr : destination.data() + run.to,
                         static_cast<size_t>(run.bytes)});
    }
    const auto* after = next < moves.runs.size() ? source.data() + moves.runs[next].from : nullptr;
    if (hash_copy_(copies_, after) != units[u].checksum) bad = u;
  }
  store_fence();
  if (bad < units.size()) return fail(Code::kDataLoss, "KV unit {} fails its checksum", bad);
  return {};
}

}  // namespace baton::transport
