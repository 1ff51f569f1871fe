// The pull connector: KvProducer and KvConsumer over shared memory on one host and framed TCP between hosts.
//
// Each has one thread of its own, which runs its state machine, its connections and its copies; copies and seals are
// done in slices of some megabytes between which messages and cancels are served. The engine's calls take a mutex for
// a few hundred nanoseconds and never wait.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "kv/cache_layout.h"
#include "transfer/connector.h"
#include "transfer/consumer_fsm.h"
#include "transfer/peer_filter.h"
#include "transport/shared_arena.h"
#include "wire/handshake.h"

namespace baton::transfer {

struct TlsFiles {
  std::string cert, key, ca;  // PEM; all empty: plain TCP
  bool verify_peer = true;
  bool enabled() const { return !cert.empty() || !ca.empty(); }
};

struct PullConnectorOptions {
  // engine_id, model, layer names, profile. Its `layout` and (when 0) instance_nonce are filled in here.
  wire::EngineIdentity identity;
  std::vector<kv::RankCache> ranks;  // of this process
  kv::CacheLayout layout;            // filled in here: of the one rank; with more ranks it stays empty
  int context_size = 1;
  wire::GridDesc grid;             // of the whole engine
  wire::GridClaim peer_claim;      // what our configuration says of the other side's grid
  std::string host = "127.0.0.1";  // P: bound, and told to D unless advertised_host is set
  std::string advertised_host;
  int port = 0;  // P: 0 is any free port
  Duration lease = std::chrono::seconds(30);
  TransportMode transport = TransportMode::kAuto;
  wire::CompareOptions allow;  // what of identities may differ
  std::string secret;          // shared by P and D; empty: none
  TlsFiles tls;
  PeerFilter peers;  // D, and P that pushes: whom requests may have us connect to
  Duration pull_timeout = std::chrono::seconds(120);
  int connections_max = 256;          // P
  MetricRegistry* metrics = nullptr;  // outlives the connector; null: none
  WakeEngine wake;                    // called from the connector's thread
};

// Memory for the blocks and slots of all ranks and for their seals, which P's peers may map: each rank's arena is where
// kv::RankArenas says within data().
Result<transport::SharedArena> create_kv_arena(std::span<const kv::RankCache> ranks);

// Listens at once. kAlreadyExists when the port is taken, kInvalidArgument for unusable options. The arena is that of
// create_kv_arena(options.ranks) and outlives the producer.
Result<std::unique_ptr<KvProducer>> make_kv_producer(PullConnectorOptions options, transport::SharedArena& arena);
// `arena` is laid out as that of create_kv_arena(options.ranks) and outlives the consumer; the ranks must hold the
// whole model, else kUnimplemented. The destructor returns once no copy runs.
Result<std::unique_ptr<KvConsumer>> make_kv_consumer(PullConnectorOptions options, std::span<std::byte> arena);

}  // namespace baton::transfer
