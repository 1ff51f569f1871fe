// What both ends of the pull connector need from its options.
#include "transfer/pull_options.h"

#include <sys/random.h>

namespace baton::transfer {

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) id = 0;
  }
  return id;
}

Result<void> complete_options(PullConnectorOptions& options) {
  const auto& g = options.geometry;
  if (g.layers <= 0 || g.kv_heads <= 0 || g.head_dim <= 0 || g.block_size <= 0 || g.block_bytes() <= 0) {
    return fail(Code::kInvalidArgument, "hand-off: the KV geometry has {} layers, {} heads of {}, blocks of {}",
                g.layers, g.kv_heads, g.head_dim, g.block_size);
  }
  if (g.layer_bytes() > wire::kPayloadBytesMax) {
    return fail(Code::kInvalidArgument,
                "hand-off: a layer of a block has {} bytes, at most {} are allowed: use smaller "
                "blocks",
                g.layer_bytes(), wire::kPayloadBytesMax);
  }
  if (options.lease < std::chrono::milliseconds(60)) {
    return fail(Code::kInvalidArgument, "hand-off: the lease is too short: give it some seconds");
  }
  options.identity.layout = {.kind = "gqa",
                             .dtype = std::string(tensor::dtype_name(g.dtype)),
                             .layers = g.layers,
                             .kv_heads = g.kv_heads,
                             .head_dim = g.head_dim,
                             .block_size = g.block_size};
  if (options.identity.instance_nonce == 0) options.identity.instance_nonce = random_id();
  if (options.advertised_host.empty()) options.advertised_host = options.host;
  return {};
}

net::TlsOptions tls_options(const TlsFiles& files) {
  return {.cert_file = files.cert, .key_file = files.key, .ca_file = files.ca, .verify_peer = files.verify_peer};
}

Result<transport::SharedArena> create_kv_arena(const kv::PagedGeometry& geometry, int64_t block_count) {
  return transport::SharedArena::create(
      {.data_bytes = geometry.block_bytes() * block_count,
       .table_bytes = kv::SealReader::table_bytes(geometry.units_per_block(), block_count)});
}

}  // namespace baton::transfer
