// The layerwise connector: P writes the KV of a prompt into D's engine layer by layer, while it computes the next one.
//
// D has blocks first. It draws a grant, listens, and announces both by the metaserver's URL; P connects, says which
// prompt it computes, and sends each cache entry of each chunk as soon as the layer is through, with a checksum per
// unit. D alone writes its memory: it copies what arrives into the grant's blocks and verifies it. A grant ends once;
// what comes for one that is over is dropped, so that no late P reaches a block with another use.
//
// One connection per request, one thread per end; the engine's calls never wait. docs/decisions says why frames.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "transfer/pull_connector.h"

namespace baton::transfer {

// POSTs `body` to `url` and calls `done`, once, on any thread, also when it fails. Must not wait. Outlives the
// consumer.
using CallMetaserver =
    std::function<void(std::string url, nlohmann::json body, std::function<void(Result<void>)> done)>;

struct LayerwiseTimeouts {
  Duration prefill = std::chrono::seconds(610);  // D: from the announcement to the last byte
  Duration tail = std::chrono::seconds(5);       // D: without a byte, once P's prefill is over; P: for an answer of D
};

// D. Listens on options.host and options.port at once; errors are those of make_kv_producer.
Result<std::unique_ptr<KvConsumer>> make_layerwise_consumer(PullConnectorOptions options, std::span<std::byte> arena,
                                                            CallMetaserver call, LayerwiseTimeouts timeouts = {});
// P. `arena`: that of the options' layout; it outlives the producer.
Result<std::unique_ptr<KvProducer>> make_layerwise_producer(PullConnectorOptions options,
                                                            std::span<const std::byte> arena,
                                                            LayerwiseTimeouts timeouts = {});

}  // namespace baton::transfer
