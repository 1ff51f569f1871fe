#include "wire/handoff_messages.h"

namespace baton::wire {
namespace {

constexpr std::string_view kNames[] = {
    "Hello",      "HelloReply", "OfferQuery", "OfferReply", "Renew",         "RenewReply", "EndOffer", "EndReply",
    "ReadBlocks", "BlockData",  "ErrorReply", "PushOpen",   "PushOpenReply", "PushData",   "PushEnd",  "PushEndReply"};
static_assert(std::size(kNames) == std::variant_size_v<Message>);
template <typename T>
uint16_t type_of() {
  return static_cast<uint16_t>(Message(T{}).index() + 1);
}

}  // namespace

std::string_view message_name(uint16_t type) {
  return type >= 1 && type <= std::size(kNames) ? kNames[type - 1] : std::string_view("unknown message");
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes, uint32_t body_bytes_max) {
  ByteReader reader(bytes);
  if (const auto magic = reader.get<uint32_t>(); magic != kFrameMagic) {
    return fail(Code::kDataLoss, "not a hand-off frame: it starts with {:08x}", magic);
  }
  if (const auto version = reader.get<uint16_t>(); version != kHandoffVersion) {
    return fail(Code::kMismatch, "hand-off protocol version: ours {}, theirs {}", kHandoffVersion, version);
  }
  FrameHeader header;
  header.type = reader.get<uint16_t>();
  header.body_bytes = reader.get<uint32_t>();
  header.payload_bytes = reader.get<uint32_t>();
  header.check = reader.get<uint64_t>();
  if (header.type < 1 || header.type > std::variant_size_v<Message>) {
    return fail(Code::kDataLoss, "hand-off frame of unknown type {}", header.type);
  }
  if (header.body_bytes > body_bytes_max) {
    return fail(Code::kOutOfRange, "{} of {} bytes, at most {} are allowed", message_name(header.type),
                header.body_bytes, body_bytes_max);
  }
  const bool carries = header.type == type_of<BlockData>() || header.type == type_of<PushData>();
  const uint32_t payload_max = carries ? kPayloadBytesMax : 0;
  if (header.payload_bytes > payload_max) {
    return fail(Code::kOutOfRange, "{} with a payload of {} bytes, at most {} are allowed", message_name(header.type),
                header.payload_bytes, payload_max);
  }
  return header;
}

Result<Message> decode_checked(const FrameHeader& header, std::span<const std::byte> body) {
  if (body.size() != header.body_bytes || frame_check(header.type, header.payload_bytes, body) != header.check) {
    return fail(Code::kDataLoss, "{} was altered on its way", message_name(header.type));
  }
  return decode_body(header.type, body);
}

}  // namespace baton::wire
