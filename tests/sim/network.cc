// The hand-off network: what is sent arrives, or something happens to it.
#include <cstring>

#include "sim/handoff.h"

namespace baton::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

}  // namespace

SimProducer* HandoffNet::find(const std::string& host) const {
  const auto found = listeners_.find(host);
  return found == listeners_.end() ? nullptr : found->second;
}

void HandoffNet::send(const LinkPtr& link, bool to_producer, const wire::Message& message,
                      std::vector<std::byte> payload) {
  if (!link->open) return;
  const auto frame = wire::encode_frame(message, static_cast<uint32_t>(payload.size()));
  const std::string& node = to_producer ? link->consumer_node : link->producer_node;
  const std::string name(wire::message_name(static_cast<uint16_t>(message.index() + 1)));
  const auto struck = [&](Fault fault) {
    if (!world_.strikes(fault, link->producer_node) && !world_.strikes(fault, link->consumer_node)) return false;
    world_.trace("{} {} of {}", fault_name(fault), name, node);
    return true;
  };
  if (struck(Fault::kCut)) return cut(link, true, true);
  if (struck(Fault::kDrop)) return;
  if (!payload.empty() && struck(Fault::kCorrupt)) payload[world_.random() % payload.size()] ^= std::byte{1};
  if (!payload.empty() && struck(Fault::kTear)) {
    if (world_.random() % 2 == 0) return cut(link, true, true);  // the rest of the frame never comes
    std::memset(payload.data() + payload.size() / 2, 0xEE, payload.size() - payload.size() / 2);
  }
  Duration delay = world_.between(microseconds(20), microseconds(200));
  if (struck(Fault::kDelay)) delay += world_.between(milliseconds(10), milliseconds(1500));
  auto& last = to_producer ? link->to_producer : link->to_consumer;
  TimePoint when = std::max(world_.now() + delay, last + Duration(1));
  if (struck(Fault::kReorder)) {
    when = world_.now() + delay + world_.between(microseconds(0), milliseconds(5));
  } else {
    last = when;
  }
  const int copies = struck(Fault::kDuplicate) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    world_.at(when + copy * world_.between(microseconds(1), milliseconds(3)),
              [this, link, to_producer, frame, payload] { deliver(link, to_producer, frame, payload); });
  }
}

void HandoffNet::deliver(const LinkPtr& link, bool to_producer, const std::vector<std::byte>& frame,
                         const std::vector<std::byte>& payload) {
  Process* receiver = nullptr;
  if (to_producer && link->producer != nullptr) receiver = &link->producer->process();
  if (!to_producer && link->consumer != nullptr) receiver = &link->consumer->process();
  if (!link->open || receiver == nullptr) return;
  receiver->after(Duration(0), [this, link, to_producer, frame, payload] {
    if (!link->open || (to_producer ? link->producer == nullptr : link->consumer == nullptr)) return;
    const auto header = wire::decode_frame_header(std::span(frame).first<wire::kFrameHeaderBytes>());
    if (!header) return world_.violation(Wrong::kOther, "a frame can't be read: {}", header.error().message());
    const auto message = wire::decode_body(header->type, std::span(frame).subspan(wire::kFrameHeaderBytes));
    if (!message) return world_.violation(Wrong::kOther, "a message can't be read: {}", message.error().message());
    world_.trace("{} -> {}: {}", to_producer ? link->consumer_node : link->producer_node,
                 to_producer ? link->producer_node : link->consumer_node, wire::message_name(header->type));
    if (to_producer) {
      link->producer->receive(link, *message);
    } else {
      link->consumer->receive(link, *message, payload);
    }
  });
}

void HandoffNet::cut(const LinkPtr& link, bool tell_producer, bool tell_consumer) {
  if (!std::exchange(link->open, false)) return;
  world_.trace("connection of {} to {} ends", link->consumer_node, link->producer_node);
  if (tell_producer && link->producer != nullptr) {
    link->producer->process().after(microseconds(50), [link] {
      if (link->producer != nullptr) link->producer->closed(link);
    });
  }
  if (tell_consumer && link->consumer != nullptr) {
    link->consumer->process().after(microseconds(50), [link] {
      if (link->consumer != nullptr) link->consumer->disconnected(link);
    });
  }
}

}  // namespace baton::sim
