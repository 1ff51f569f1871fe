#include <cstring>

#include "sim/handoff.h"

namespace baton::sim {

Result<std::shared_ptr<Arena>> make_arena(const std::vector<kv::RankCache>& ranks, int context_size) {
  auto arena = std::make_shared<Arena>();
  BATON_TRY_ASSIGN(auto holdings, transfer::make_holdings(ranks, context_size));
  arena->holdings = std::make_shared<const transfer::Holdings>(std::move(holdings));
  const auto& arenas = arena->holdings->arenas;
  BATON_TRY_ASSIGN(arena->data, tensor::Buffer::allocate(static_cast<size_t>(arenas.data_bytes())));
  BATON_TRY_ASSIGN(arena->tables, tensor::Buffer::allocate(static_cast<size_t>(arenas.table_bytes())));
  return arena;
}

Result<std::unique_ptr<SimHost>> SimHost::make(HandoffNet& net, Process& process, bool prefill,
                                               HandoffIdentity identity, const engine::KvHostRequest& request) {
  auto host = std::make_unique<SimHost>();
  identity.model_fingerprint = request.model_fingerprint;
  BATON_TRY_ASSIGN(host->arena_, make_arena(request.ranks, request.context_size));
  auto& arena = *host->arena_;
  if (!prefill) {
    host->consumer_ = std::make_unique<SimConsumer>(net, process, host->arena_, identity, request.wake);
    return host;
  }
  BATON_TRY_ASSIGN(
      auto seals, transfer::RankSeals::over(arena.holdings, {arena.tables.data(), arena.tables.size()}, arena.bytes()));
  host->producer_ = std::make_unique<SimProducer>(net, process, host->arena_, identity, std::move(seals), request.wake);
  return host;
}

void SimHost::scribble(int32_t index, bool state) {
  const auto& holdings = *arena_->holdings;
  for (int rank = 0; rank < holdings.rank_count(); ++rank) {
    std::memset(arena_->data.data() + holdings.offset(rank, index, state), 0xAB,
                static_cast<size_t>(holdings.geometry(rank, state).block_bytes()));
  }
}

}  // namespace baton::sim
