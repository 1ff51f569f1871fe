#include "apps/serve/handoff_host.h"

#include <optional>
#include <utility>

#include "apps/serve/metaserver_client.h"
#include "base/log.h"
#include "kv/rank_arenas.h"
#include "transfer/layerwise_connector.h"
#include "transfer/pull_connector.h"
#include "transport/shared_arena.h"

namespace baton::apps {
namespace {

Duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Result<transfer::TransportMode> transport_mode(const std::string& name) {
  if (name == "auto") return transfer::TransportMode::kAuto;
  if (name == "shm") return transfer::TransportMode::kShm;
  if (name == "tcp") return transfer::TransportMode::kTcp;
  return fail(Code::kInvalidArgument, "kv transport '{}': use auto, shm or tcp", name);
}

// What is said of our own side must be so, too.
Result<void> check_own_claims(const engine::KvTransferConfig& config, const wire::GridDesc& grid) {
  using engine::KvRole;
  if (config.role == KvRole::kProducer) return wire::check_claim(config.prefill_claim, grid, "prefill engine");
  if (config.role == KvRole::kConsumer) return wire::check_claim(config.decode_claim, grid, "decode engine");
  return {};
}

Result<transfer::PullConnectorOptions> connector_options(const HandoffHostOptions& options,
                                                         const engine::KvHostRequest& request) {
  const auto& config = options.config;
  transfer::PullConnectorOptions made;
  made.identity.engine_id = config.engine_id;
  made.identity.model_config = options.model_config;
  made.identity.quantisation = options.quantisation;
  made.identity.model_fingerprint = request.model_fingerprint;
  made.identity.tokenizer_hash = options.tokenizer_hash;
  made.identity.profile = options.profile;
  made.identity.software_version = BATON_VERSION;
  made.ranks = request.ranks;
  made.context_size = request.context_size;
  made.grid = request.ranks[0].grid;
  made.grid.processes = request.process_count;
  BATON_TRY(check_own_claims(config, made.grid));
  made.host = config.host;
  made.port = config.port;
  // The processes after the first: kv_port and what its stages' ranks would take are not theirs.
  if (made.port != 0) made.port += request.ranks[0].stage * made.grid.pcp * made.grid.tp;
  if (made.port > 65535) made.port = 0;
  made.lease = seconds_of(config.lease_s);
  BATON_TRY_ASSIGN(made.transport, transport_mode(config.transport));
  made.secret = config.secret;
  made.tls = {.cert = config.tls_cert, .key = config.tls_key, .ca = config.tls_ca};
  made.allow = {.allow_other_profile = config.allow_other_profile, .allow_other_version = config.allow_other_version};
  BATON_TRY_ASSIGN(made.peers, transfer::PeerFilter::parse(config.peers));
  made.metrics = options.metrics;
  made.wake = request.wake;
  return made;
}

class HandoffHost final : public engine::KvHost {
 public:
  HandoffHost(transport::SharedArena arena, const std::vector<kv::RankCache>& ranks) : arena_(std::move(arena)) {
    for (const auto& rank : ranks) arenas_.add(rank.layout);
  }

  Result<void> connect(const engine::KvTransferConfig& config, transfer::PullConnectorOptions options) {
    using engine::KvRole;
    if (config.connector == "MooncakeLayerwiseConnector") return connect_layerwise(config, std::move(options));
    if (config.role == KvRole::kProducer || config.role == KvRole::kBoth) {
      options.peer_claim = config.decode_claim;
      auto made = transfer::make_kv_producer(options, arena_);
      // Peers hear of this port from the engine's first process, so that any will do.
      const bool named = options.ranks[0].stage == 0;
      if (!made && made.error().code() == Code::kAlreadyExists && !named) {
        log_info("kv_port={} taken, another one is used", options.port);
        options.port = 0;
        made = transfer::make_kv_producer(options, arena_);
      }
      BATON_TRY_ASSIGN(producer_, std::move(made));
    }
    if (config.role == KvRole::kConsumer || config.role == KvRole::kBoth) {
      options.peer_claim = config.prefill_claim;
      BATON_TRY_ASSIGN(consumer_, transfer::make_kv_consumer(options, arena_.data()));
    }
    return {};
  }

  Result<void> connect_layerwise(const engine::KvTransferConfig& config, transfer::PullConnectorOptions options) {
    if (config.role == engine::KvRole::kProducer) {
      options.peer_claim = config.decode_claim;
      BATON_TRY_ASSIGN(producer_, transfer::make_layerwise_producer(options, arena_.data()));
      return {};
    }
    options.peer_claim = config.prefill_claim;
    metaserver_ = std::make_shared<MetaserverClient>(MetaserverClient::Options{
        .tls = {.cert_file = options.tls.cert, .key_file = options.tls.key, .ca_file = options.tls.ca},
        .allow = options.peers.predicate()});
    BATON_TRY_ASSIGN(consumer_, transfer::make_layerwise_consumer(
                                    options, arena_.data(), [client = metaserver_](auto url, auto body, auto done) {
                                      client->call(std::move(url), std::move(body), std::move(done));
                                    }));
    return {};
  }
  // Its answers go to the consumer.
  ~HandoffHost() override {
    if (metaserver_) metaserver_->stop();
  }

  std::byte* memory(int rank) override { return arena_.data().data() + arenas_.data_offset(rank); }
  transfer::KvProducer* producer() override { return producer_.get(); }
  transfer::KvConsumer* consumer() override { return consumer_.get(); }

 private:
  transport::SharedArena arena_;  // outlives both ends
  kv::RankArenas arenas_;
  std::unique_ptr<transfer::KvProducer> producer_;
  std::unique_ptr<transfer::KvConsumer> consumer_;
  std::shared_ptr<MetaserverClient> metaserver_;  // shared with what the consumer calls it by
};

}  // namespace

engine::MakeKvHost handoff_host_factory(HandoffHostOptions options) {
  return [options = std::move(options)](engine::KvHostRequest request) -> Result<std::unique_ptr<engine::KvHost>> {
    BATON_TRY_ASSIGN(auto connector, connector_options(options, request));
    BATON_TRY_ASSIGN(auto arena, transfer::create_kv_arena(request.ranks));
    auto host = std::make_unique<HandoffHost>(std::move(arena), request.ranks);
    BATON_TRY(host->connect(options.config, std::move(connector)));
    return host;
  };
}

}  // namespace baton::apps
