// What both ends of the pull connector need from its options.
#include "transfer/pull_options.h"

#include <sys/random.h>

#include <algorithm>

#include "transfer/reshard_plan.h"

namespace baton::transfer {

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) id = 0;
  }
  return id;
}

int64_t largest_entry(const kv::PagedGeometry& geometry) {
  int64_t most = 0;
  for (int entry = 0; entry < geometry.entry_count(); ++entry) most = std::max(most, geometry.entry_bytes(entry));
  return most;
}

namespace {

// A frame holds at least one entry of a block, or of a slot.
Result<void> check_entries(const kv::PagedGeometry& geometry, std::string_view what) {
  if (const auto bytes = largest_entry(geometry); bytes > wire::kPayloadBytesMax) {
    return fail(Code::kInvalidArgument, "hand-off: {} has {} bytes, at most {} are allowed: use smaller blocks", what,
                bytes, wire::kPayloadBytesMax);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Holdings>> complete_options(PullConnectorOptions& options) {
  BATON_TRY_ASSIGN(auto holdings, make_holdings(options.ranks, options.context_size));
  for (const auto& rank : holdings.ranks) {
    BATON_TRY(check_entries(rank.layout.blocks, "an entry of a block"));
    BATON_TRY(check_entries(rank.layout.states, "a layer's recurrent state"));
  }
  if (options.lease < std::chrono::milliseconds(60)) {
    return fail(Code::kInvalidArgument, "hand-off: the lease is too short: give it some seconds");
  }
  if (options.tls.enabled()) BATON_TRY(net::check_client_tls(tls_options(options.tls)));
  options.identity.layout = describe(holdings, options.grid);
  BATON_TRY(wire::check_layout(options.identity.layout));
  if (options.identity.layer_names.empty()) {
    for (const auto& [index, whole] : options.identity.layout.entries) {
      options.identity.layer_names.push_back(fmt::format("cache.{}.{}", index, whole.kind));
    }
  }
  if (options.identity.instance_nonce == 0) options.identity.instance_nonce = random_id();
  if (options.ranks.size() == 1) options.layout = options.ranks[0].layout;
  if (options.advertised_host.empty()) options.advertised_host = options.host;
  return std::make_shared<const Holdings>(std::move(holdings));
}

Result<std::shared_ptr<const Holdings>> complete_consumer_options(PullConnectorOptions& options,
                                                                  std::span<const std::byte> arena) {
  BATON_TRY_ASSIGN(auto holdings, complete_options(options));
  if (std::ssize(arena) < holdings->arenas.data_bytes()) {
    return fail(Code::kInvalidArgument,
                "hand-off: a KV arena of {} bytes is too small for {} blocks and {} slots of {} ranks", arena.size(),
                holdings->block_count, holdings->slot_count, holdings->rank_count());
  }
  if (options.grid.processes != 1) {
    return fail(Code::kUnimplemented,
                "hand-off: a decode engine over {} processes: give each of its replicas one process (--nnodes 1)",
                options.grid.processes);
  }
  const ReshardPlan itself(holdings, holdings, 0);
  const ReshardPlan* const plans[] = {&itself};
  if (const auto missing = ReshardPlan::missing(plans)) {
    return fail(Code::kInvalidArgument, "hand-off: {} of ours", *missing);
  }
  return holdings;
}

net::TlsOptions tls_options(const TlsFiles& files) {
  return {.cert_file = files.cert, .key_file = files.key, .ca_file = files.ca, .verify_peer = files.verify_peer};
}

Result<transport::SharedArena> create_kv_arena(std::span<const kv::RankCache> ranks) {
  kv::RankArenas arenas;
  for (const auto& rank : ranks) arenas.add(rank.layout);
  return transport::SharedArena::create({.data_bytes = arenas.data_bytes(), .table_bytes = arenas.table_bytes()});
}

}  // namespace baton::transfer
