// Both state machines of a pull, and a peer that says whatever passes the decoder: honest messages relayed in any
// order, altered ones, made-up ones, lost connections, time. Whatever comes: every pull completes once, every offer is
// released once, and no more is called valid than there is; an assertion or a wild index is a finding too.
//
// The input is a list of steps: a byte says which, the next ones what. An honest exchange needs a dozen bytes, so that
// mutations reach all stages.
#include <cstdlib>
#include <deque>
#include <map>

#include "base/byte_codec.h"
#include "transfer/fsm_test_support.h"

namespace {

using namespace baton;
using namespace baton::transfer;
using namespace baton::transfer::testing;
using std::chrono::milliseconds;

constexpr int64_t kTokens = 10;

void require(bool holds) {
  if (!holds) std::abort();
}

class Conversation {
 public:
  explicit Conversation(bool shm)
      : producer_({.hello = hello_reply(shm), .holdings = kHoldings, .lease = milliseconds(3000)}),
        consumer_({.identity = identity("d"),
                   .holdings = kHoldings,
                   .slice_bytes = 2 * kBlockBytes,
                   .pull_timeout = milliseconds(20000),
                   .idle_timeout = milliseconds(5000)}) {
    for (uint64_t id : {1, 2}) begin(id);
    act();
  }

  void step(ByteReader& input) {
    switch (input.get<uint8_t>() % 8) {
      case 0:
        return relay(to_producer_, true, input);
      case 1:
        return relay(to_consumer_, false, input);
      case 2:
        return pass(milliseconds(int64_t{10} * input.get<uint8_t>()));
      case 3:
        return make_up(true, input);
      case 4:
        return make_up(false, input);
      case 5:
        return alter(to_producer_, input);
      case 6:
        return alter(to_consumer_, input);
      default:
        return disturb(input.get<uint8_t>());
    }
  }

  // All deadlines pass.
  void end() {
    for (int i = 0; i < 400 && (!pulls_.empty() || !offers_.empty()); ++i) pass(milliseconds(500));
    require(pulls_.empty() && offers_.empty());
    require(producer_.live_offers() == 0 && consumer_.live_pulls() == 0 && producer_.held_blocks() == 0);
  }

 private:
  struct Sent {
    ConnectionId connection = 0;
    wire::Message message;
    int64_t payload_bytes = 0;
  };

  void begin(uint64_t id) {
    const auto request = "r" + std::to_string(id);
    const auto first = static_cast<int32_t>(10 * id);
    Offer offer{.request_id = request, .token_count = kTokens};
    Pull pull{.request_id = request, .token_count = kTokens};
    for (int32_t b = 0; b < (kTokens + kBlockSize - 1) / kBlockSize; ++b) {
      offer.blocks.push_back(BlockId(first + b));
      pull.blocks.push_back(BlockId(first + b));
    }
    if (id == 2) offer.state_slot = pull.state_slot = 3;
    pull.params.remote_engine_id = "p";
    pull.params.remote_host = "p";
    pull.params.remote_port = 1;
    pull.params.baton_offer_id = id;
    offers_.insert(request);
    pulls_.insert(request);
    producer_.offer(id, offer, now_);
    consumer_.start(pull, now_);
  }

  void pass(Duration time) {
    now_ += time;
    producer_.tick(now_);
    consumer_.tick(now_);
    act();
  }

  void relay(std::deque<Sent>& queue, bool producer, ByteReader& input) {
    if (queue.empty()) return;
    const size_t index = input.get<uint8_t>() % 4 % queue.size();  // mostly in order
    const Sent sent = queue[index];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
    deliver(sent, producer);
  }

  void deliver(const Sent& sent, bool producer) {
    if (producer) {
      producer_.on_message(sent.connection, sent.message, now_);
    } else if (const auto* data = std::get_if<wire::BlockData>(&sent.message)) {
      if (const auto target = consumer_.on_block_data(sent.connection, *data, sent.payload_bytes, now_)) {
        consumer_.on_stored(target->leg, *data, sent.payload_bytes, {}, now_);
      }
    } else {
      consumer_.on_message(sent.connection, sent.message, now_);
    }
    act();
  }

  void make_up(bool producer, ByteReader& input) {
    Sent sent{.connection = static_cast<ConnectionId>(input.get<uint8_t>() % 4), .message = {}};
    const uint16_t type = input.get<uint8_t>();
    sent.payload_bytes = input.get<uint16_t>();
    const auto body = input.get_bytes(std::min<size_t>(input.get<uint16_t>(), input.remaining()));
    auto message = wire::decode_body(type, body);
    if (!message) return;
    sent.message = std::move(*message);
    deliver(sent, producer);
  }

  // The next message, a few of its bytes changed.
  void alter(std::deque<Sent>& queue, ByteReader& input) {
    const int changes = input.get<uint8_t>() % 4;
    if (queue.empty()) return;
    auto frame = wire::encode_frame(queue.front().message);
    for (int i = 0; i < changes && frame.size() > wire::kFrameHeaderBytes; ++i) {
      const size_t at = input.get<uint16_t>() % (frame.size() - wire::kFrameHeaderBytes);
      frame[wire::kFrameHeaderBytes + at] ^= input.get<std::byte>();
    }
    const auto type = static_cast<uint16_t>(queue.front().message.index() + 1);
    auto message = wire::decode_body(type, std::span(frame).subspan(wire::kFrameHeaderBytes));
    if (message) queue.front().message = std::move(*message);
  }

  void disturb(uint8_t how) {
    if (how < 64) {
      const ConnectionId connection = how % 4;
      consumer_.on_disconnected(connection, {Code::kUnavailable, "reset"}, now_);
      producer_.on_closed(connection, now_);
    } else if (how < 128) {
      consumer_.cancel(how % 2 == 0 ? "r1" : "r2", now_);
    } else if (how < 192) {
      producer_.revoke(how % 2 == 0 ? "r1" : "r2");
    } else {
      refuse_connections_ = how % 2 == 0;
    }
    act();
  }

  void act() {
    for (bool busy = true; busy;) {
      busy = false;
      for (auto& action : producer_.take_actions()) {
        busy = true;
        std::visit([this](auto& each) { on(each); }, action);
      }
      for (auto& action : consumer_.take_actions()) {
        busy = true;
        std::visit([this](auto& each) { on(each); }, action);
      }
    }
    // A peer may say more than a test wants to keep.
    while (to_producer_.size() > 64) to_producer_.pop_front();
    while (to_consumer_.size() > 64) to_consumer_.pop_front();
  }

  // P's drivers
  void on(SealBlocks& seal) {
    std::vector<uint64_t> generations;
    for (const auto& block : seal.blocks) generations.push_back(static_cast<uint64_t>(block.block) * 2 + 2);
    producer_.on_sealed(seal.offer_id, generations, now_);
  }
  void on(SendToConnection& send) { to_consumer_.push_back({send.connection, std::move(send.message), 0}); }
  void on(SendBlocks& send) {
    for (size_t i = 0; i < send.parts.size(); ++i) {
      const auto& part = send.parts[i];
      const auto& wanted = send.ranks.at(part.of);
      for (const auto& span : wanted.spans) {
        // What the driver would read lies inside the arena.
        require(part.block >= 0 && part.block < (wanted.state ? kLayout.slot_count : kLayout.block_count));
        const wire::BlockData data{.call = send.call,
                                   .offer_id = send.offer_id,
                                   .part = static_cast<uint32_t>(i),
                                   .tokens = static_cast<uint32_t>(part.tokens),
                                   .generation = part.generation,
                                   .span = span,
                                   .last = i + 1 == send.parts.size() && &span == &wanted.spans.back(),
                                   .checksums = std::vector<uint64_t>(span_units(span))};
        to_consumer_.push_back(
            {send.connection, data, span_bytes(kHoldings->geometry(0, wanted.state), span, part.tokens)});
      }
    }
    producer_.on_blocks_sent(send.connection, send.offer_id);
  }
  void on(ReopenBlocks&) {}
  void on(Release& release) { require(offers_.erase(release.request_id) == 1); }
  void on(CloseConnection& close) { broken(close.connection); }

  // D's driver
  void on(Connect& connect) {
    if (refuse_connections_) {
      consumer_.on_disconnected(connect.connection, {Code::kUnavailable, "refused"}, now_);
    } else {
      consumer_.on_connected(connect.connection, now_);
    }
  }
  void on(Disconnect& disconnect) { producer_.on_closed(disconnect.connection, now_); }
  void on(SendToPeer& send) { to_producer_.push_back({send.connection, std::move(send.message), 0}); }
  void on(MapArena& map) { consumer_.on_mapped(map.connection, {}, now_); }
  void on(CopyParts& copy) {
    for (const auto& part : copy.parts) {
      require(part.from >= 0);
      for (const auto& piece : part.pieces) require(piece.to >= 0 && piece.to < kLayout.block_count);
    }
    consumer_.on_copied(copy.leg, copy.parts.size(), {}, now_);
  }
  void on(Complete& complete) {
    require(pulls_.erase(complete.result.request_id) == 1);
    require(complete.result.valid_tokens >= 0 && complete.result.valid_tokens <= kTokens);
    if (complete.result.outcome) require(complete.result.valid_tokens == kTokens);
  }
  void broken(ConnectionId connection) {
    producer_.on_closed(connection, now_);
    consumer_.on_disconnected(connection, {Code::kUnavailable, "closed"}, now_);
  }

  TimePoint now_{std::chrono::seconds(1000)};
  ProducerFsm producer_;
  ConsumerFsm consumer_;
  std::deque<Sent> to_producer_, to_consumer_;
  std::set<std::string> offers_, pulls_;
  bool refuse_connections_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ByteReader input(std::as_bytes(std::span(data, size)));
  Conversation conversation((input.get<uint8_t>() & 1) != 0);
  for (int steps = 0; steps < 500 && input.ok() && input.remaining() > 0; ++steps) conversation.step(input);
  conversation.end();
  return 0;
}
