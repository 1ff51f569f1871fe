// What both ends of the pull connector need from its options.
#include "transfer/pull_options.h"

#include <sys/random.h>

#include <algorithm>

namespace baton::transfer {

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) id = 0;
  }
  return id;
}

Result<void> complete_options(PullConnectorOptions& options) {
  const auto& layout = options.layout;
  if (layout.blocks.empty() || layout.block_count <= 0 || (layout.slot_count > 0 && layout.states.empty())) {
    return fail(Code::kInvalidArgument, "hand-off: the KV arena has {} blocks of {} entries, {} slots of {}",
                layout.block_count, layout.blocks.entry_count(), layout.slot_count, layout.states.entry_count());
  }
  if (const auto bytes = largest_entry(layout.blocks); bytes > wire::kPayloadBytesMax) {
    return fail(Code::kInvalidArgument,
                "hand-off: an entry of a block has {} bytes, at most {} are allowed: use smaller blocks", bytes,
                wire::kPayloadBytesMax);
  }
  if (const auto bytes = largest_entry(layout.states); bytes > wire::kPayloadBytesMax) {
    return fail(Code::kInvalidArgument, "hand-off: a layer's recurrent state has {} bytes, at most {} are allowed",
                bytes, wire::kPayloadBytesMax);
  }
  if (options.lease < std::chrono::milliseconds(60)) {
    return fail(Code::kInvalidArgument, "hand-off: the lease is too short: give it some seconds");
  }
  options.identity.layout = {
      .block_size = layout.blocks.block_size(), .entries = layout.blocks.entries(), .states = layout.states.entries()};
  if (options.identity.instance_nonce == 0) options.identity.instance_nonce = random_id();
  if (options.advertised_host.empty()) options.advertised_host = options.host;
  return {};
}

net::TlsOptions tls_options(const TlsFiles& files) {
  return {.cert_file = files.cert, .key_file = files.key, .ca_file = files.ca, .verify_peer = files.verify_peer};
}

int64_t largest_entry(const kv::PagedGeometry& geometry) {
  int64_t most = 0;
  for (int entry = 0; entry < geometry.entry_count(); ++entry) most = std::max(most, geometry.entry_bytes(entry));
  return most;
}

int64_t block_table_bytes(const kv::CacheLayout& layout) {
  return kv::SealReader::table_bytes(layout.blocks.units_per_block(), layout.block_count);
}

Result<transport::SharedArena> create_kv_arena(const kv::CacheLayout& layout) {
  const auto states = kv::SealReader::table_bytes(layout.states.units_per_block(), layout.slot_count);
  return transport::SharedArena::create(
      {.data_bytes = layout.data_bytes(), .table_bytes = block_table_bytes(layout) + states});
}

}  // namespace baton::transfer
