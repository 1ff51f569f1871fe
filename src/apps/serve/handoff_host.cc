#include "apps/serve/handoff_host.h"

#include <optional>
#include <utility>

#include "apps/serve/metaserver_client.h"
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

Result<transfer::PullConnectorOptions> connector_options(const HandoffHostOptions& options,
                                                         const engine::KvHostRequest& request) {
  const auto& config = options.config;
  transfer::PullConnectorOptions made;
  made.identity.engine_id = config.engine_id;
  made.identity.model_fingerprint = request.model_fingerprint;
  made.identity.tokenizer_hash = options.tokenizer_hash;
  made.identity.profile = options.profile;
  made.identity.software_version = BATON_VERSION;
  const auto& entries = request.ranks[0].layout.blocks.entries();
  for (size_t entry = 0; entry < entries.size(); ++entry) {
    made.identity.layer_names.push_back(fmt::format("cache.{}.{}", entry, entries[entry].kind));
  }
  made.layout = request.ranks[0].layout;
  made.host = config.host;
  made.port = config.port;
  made.lease = seconds_of(config.lease_s);
  BATON_TRY_ASSIGN(made.transport, transport_mode(config.transport));
  made.secret = config.secret;
  made.tls = {.cert = config.tls_cert, .key = config.tls_key, .ca = config.tls_ca};
  made.metrics = options.metrics;
  made.wake = request.wake;
  return made;
}

class HandoffHost final : public engine::KvHost {
 public:
  explicit HandoffHost(transport::SharedArena arena) : arena_(std::move(arena)) {}

  Result<void> connect(const engine::KvTransferConfig& config, const transfer::PullConnectorOptions& options) {
    using engine::KvRole;
    if (config.connector == "MooncakeLayerwiseConnector") return connect_layerwise(config.role, options);
    if (config.role == KvRole::kProducer || config.role == KvRole::kBoth) {
      BATON_TRY_ASSIGN(producer_, transfer::make_kv_producer(options, arena_));
    }
    if (config.role == KvRole::kConsumer || config.role == KvRole::kBoth) {
      BATON_TRY_ASSIGN(consumer_, transfer::make_kv_consumer(options, arena_.data()));
    }
    return {};
  }

  Result<void> connect_layerwise(engine::KvRole role, const transfer::PullConnectorOptions& options) {
    if (role == engine::KvRole::kProducer) {
      BATON_TRY_ASSIGN(producer_, transfer::make_layerwise_producer(options, arena_.data()));
      return {};
    }
    metaserver_ = std::make_shared<MetaserverClient>();
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

  std::byte* memory(int) override { return arena_.data().data(); }
  transfer::KvProducer* producer() override { return producer_.get(); }
  transfer::KvConsumer* consumer() override { return consumer_.get(); }

 private:
  transport::SharedArena arena_;  // outlives both ends
  std::unique_ptr<transfer::KvProducer> producer_;
  std::unique_ptr<transfer::KvConsumer> consumer_;
  std::shared_ptr<MetaserverClient> metaserver_;  // shared with what the consumer calls it by
};

}  // namespace

engine::MakeKvHost handoff_host_factory(HandoffHostOptions options) {
  return [options = std::move(options)](engine::KvHostRequest request) -> Result<std::unique_ptr<engine::KvHost>> {
    if (request.ranks.size() != 1) {
      return fail(Code::kUnimplemented, "a hand-off of {} ranks", request.ranks.size());
    }
    const bool layerwise = options.config.connector == "MooncakeLayerwiseConnector";
    if (layerwise && (request.ranks.size() != 1 || request.process_count != 1 || request.context_size != 1)) {
      return fail(Code::kUnimplemented,
                  "MooncakeLayerwiseConnector pushes between engines of one rank each: use the pull connector "
                  "(MooncakeConnectorV1) with several");
    }
    BATON_TRY_ASSIGN(auto connector, connector_options(options, request));
    BATON_TRY_ASSIGN(auto arena, transfer::create_kv_arena(request.ranks[0].layout));
    auto host = std::make_unique<HandoffHost>(std::move(arena));
    BATON_TRY(host->connect(options.config, connector));
    return host;
  };
}

}  // namespace baton::apps
