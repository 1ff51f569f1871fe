#include "base/checks.h"
#include "wire/handoff_messages.h"

namespace baton::wire {
namespace {

constexpr size_t kHostMax = 512;

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

void put(ByteWriter& w, const Hello& m) { encode_identity(m.identity, w); }
void put(ByteWriter& w, const HelloReply& m) {
  encode_identity(m.identity, w);
  w.put(m.block_count);
  w.put(m.slot_count);
  w.put(m.lease_ms);
  w.put(static_cast<uint32_t>(m.members.size()));
  for (const auto& member : m.members) {
    w.put_string(member.host);
    w.put(member.port);
  }
  w.put(static_cast<uint8_t>(m.shm.has_value()));
  if (!m.shm) return;
  w.put_string(m.shm->boot_id);
  w.put(m.shm->pid);
  w.put(m.shm->fd);
  w.put(m.shm->nonce[0]);
  w.put(m.shm->nonce[1]);
  w.put(m.shm->data_bytes);
  w.put(m.shm->table_bytes);
}
void put(ByteWriter& w, const OfferQuery& m) {
  w.put(m.call);
  w.put(m.offer_id);
}
void put(ByteWriter& w, const OfferReply& m) {
  w.put(m.call);
  w.put(m.offer_id);
  w.put(m.token_count);
  w.put_array(view(m.blocks));
  w.put_array(view(m.generations));
  w.put(m.prompt[0]);
  w.put(m.prompt[1]);
  w.put(m.state_slot);
  w.put(m.state_generation);
}
void put(ByteWriter& w, const Renew& m) {
  w.put(m.call);
  w.put_array(view(m.offer_ids));
}
void put(ByteWriter& w, const RenewReply& m) {
  w.put(m.call);
  w.put_array(view(m.rejected));
}
void put(ByteWriter& w, const EndOffer& m) {
  w.put(m.call);
  w.put(m.offer_id);
  w.put(static_cast<uint8_t>(m.done));
}
void put(ByteWriter& w, const EndReply& m) {
  w.put(m.call);
  w.put(m.offer_id);
  w.put(static_cast<uint8_t>(m.known));
}
void put(ByteWriter& w, const UnitSpan& span) {
  w.put(span.first_entry);
  w.put(span.entry_count);
  w.put(span.first_unit);
  w.put(span.unit_count);
}
void put(ByteWriter& w, const ReadBlocks& m) {
  w.put(m.call);
  w.put(m.offer_id);
  w.put(static_cast<uint32_t>(m.ranks.size()));
  for (const auto& rank : m.ranks) {
    w.put(rank.rank);
    w.put(static_cast<uint8_t>(rank.state));
    w.put(static_cast<uint32_t>(rank.spans.size()));
    for (const auto& span : rank.spans) put(w, span);
  }
  w.put(static_cast<uint32_t>(m.parts.size()));
  for (const auto& part : m.parts) {
    w.put(part.of);
    w.put(part.place);
  }
}
void put(ByteWriter& w, const BlockData& m) {
  w.put(m.call);
  w.put(m.offer_id);
  w.put(m.part);
  w.put(m.tokens);
  w.put(m.generation);
  put(w, m.span);
  w.put(static_cast<uint8_t>(m.last));
  w.put_array(view(m.checksums));
}
void put(ByteWriter& w, const ErrorReply& m) {
  w.put(m.call);
  w.put(m.offer_id);
  w.put(m.code);
  w.put_string(std::string_view(m.message).substr(0, kErrorTextMax));
}
void put(ByteWriter& w, const PushOpen& m) {
  w.put(m.grant_id);
  w.put(m.push_id);
  w.put(m.token_count);
  w.put(m.prompt[0]);
  w.put(m.prompt[1]);
  w.put(static_cast<uint8_t>(m.has_state));
}
void put(ByteWriter& w, const PushOpenReply& m) {
  w.put(m.grant_id);
  w.put(m.skip_tokens);
  w.put(static_cast<uint8_t>(m.want_state));
}
void put(ByteWriter& w, const PushData& m) {
  w.put(m.grant_id);
  w.put(m.rank);
  w.put(static_cast<uint8_t>(m.state));
  put(w, m.span);
  w.put(m.first_place);
  w.put(m.place_count);
  w.put_array(view(m.checksums));
}
void put(ByteWriter& w, const PushEnd& m) {
  w.put(m.grant_id);
  w.put(static_cast<uint8_t>(m.done));
  w.put(m.last_token);
}
void put(ByteWriter& w, const PushEndReply& m) {
  w.put(m.grant_id);
  w.put(static_cast<uint8_t>(m.complete));
}

Result<void> get(ByteReader& r, Hello& m) {
  BATON_TRY_ASSIGN(m.identity, decode_identity(r));
  return {};
}
Result<void> get(ByteReader& r, HelloReply& m) {
  BATON_TRY_ASSIGN(m.identity, decode_identity(r));
  m.block_count = r.get<int64_t>();
  m.slot_count = r.get<int64_t>();
  m.lease_ms = r.get<int64_t>();
  if (m.block_count < 0 || m.slot_count < 0 || m.lease_ms < 0)
    return fail(Code::kOutOfRange, "HelloReply with a negative size");
  const auto members = r.get<uint32_t>();
  if (members > kMembersMax) return fail(Code::kOutOfRange, "HelloReply with {} members", members);
  for (uint32_t i = 0; i < members && r.ok(); ++i) {
    auto& member = m.members.emplace_back();
    member.host = r.get_string();
    member.port = r.get<int32_t>();
    if (member.host.size() > kHostMax || member.port < 0 || member.port > 65535) {
      return fail(Code::kOutOfRange, "HelloReply with a member at port {} and a host of {} bytes", member.port,
                  member.host.size());
    }
  }
  if (r.get<uint8_t>() == 0) return {};
  auto& shm = m.shm.emplace();
  shm.boot_id = r.get_string();
  shm.pid = r.get<int64_t>();
  shm.fd = r.get<int32_t>();
  shm.nonce[0] = r.get<uint64_t>();
  shm.nonce[1] = r.get<uint64_t>();
  shm.data_bytes = r.get<uint64_t>();
  shm.table_bytes = r.get<uint64_t>();
  return {};
}
Result<void> get(ByteReader& r, OfferQuery& m) {
  m.call = r.get<uint64_t>();
  m.offer_id = r.get<uint64_t>();
  return {};
}
Result<void> get(ByteReader& r, OfferReply& m) {
  m.call = r.get<uint64_t>();
  m.offer_id = r.get<uint64_t>();
  m.token_count = r.get<int64_t>();
  m.blocks = r.get_array<int32_t>();
  m.generations = r.get_array<uint64_t>();
  m.prompt = {r.get<uint64_t>(), r.get<uint64_t>()};
  m.state_slot = r.get<int32_t>();
  m.state_generation = r.get<uint64_t>();
  if (m.state_slot < -1) return fail(Code::kOutOfRange, "OfferReply with state slot {}", m.state_slot);
  if (m.blocks.size() > kBlocksMax || m.blocks.size() != m.generations.size() || m.token_count < 0) {
    return fail(Code::kOutOfRange, "OfferReply with {} blocks, {} generations and {} tokens (at most {} blocks)",
                m.blocks.size(), m.generations.size(), m.token_count, kBlocksMax);
  }
  return {};
}
Result<void> get(ByteReader& r, Renew& m) {
  m.call = r.get<uint64_t>();
  m.offer_ids = r.get_array<uint64_t>();
  if (m.offer_ids.size() > kRenewalsMax) return fail(Code::kOutOfRange, "Renew of {} offers", m.offer_ids.size());
  return {};
}
Result<void> get(ByteReader& r, RenewReply& m) {
  m.call = r.get<uint64_t>();
  m.rejected = r.get_array<uint64_t>();
  if (m.rejected.size() > kRenewalsMax) return fail(Code::kOutOfRange, "RenewReply on {} offers", m.rejected.size());
  return {};
}
Result<void> get(ByteReader& r, EndOffer& m) {
  m.call = r.get<uint64_t>();
  m.offer_id = r.get<uint64_t>();
  m.done = r.get<uint8_t>() != 0;
  return {};
}
Result<void> get(ByteReader& r, EndReply& m) {
  m.call = r.get<uint64_t>();
  m.offer_id = r.get<uint64_t>();
  m.known = r.get<uint8_t>() != 0;
  return {};
}
UnitSpan get_span(ByteReader& r) {
  UnitSpan span;
  span.first_entry = r.get<uint32_t>();
  span.entry_count = r.get<uint32_t>();
  span.first_unit = r.get<uint32_t>();
  span.unit_count = r.get<uint32_t>();
  return span;
}
Result<void> get_ranks(ByteReader& r, ReadBlocks& m) {
  const auto ranks = r.get<uint32_t>();
  uint64_t all_spans = 0;
  for (uint32_t i = 0; i < ranks && r.ok(); ++i) {
    auto& rank = m.ranks.emplace_back();
    rank.rank = r.get<uint32_t>();
    rank.state = r.get<uint8_t>() != 0;
    const auto spans = r.get<uint32_t>();
    all_spans += spans;
    if (ranks > kReadPartsMax || all_spans > kReadSpansMax) {
      return fail(Code::kOutOfRange, "ReadBlocks of {} ranks, {} spans", ranks, all_spans);
    }
    for (uint32_t s = 0; s < spans && r.ok(); ++s) rank.spans.push_back(get_span(r));
  }
  return {};
}
Result<void> get(ByteReader& r, ReadBlocks& m) {
  m.call = r.get<uint64_t>();
  m.offer_id = r.get<uint64_t>();
  BATON_TRY(get_ranks(r, m));
  const auto parts = r.get<uint32_t>();
  if (parts > kReadPartsMax) return fail(Code::kOutOfRange, "ReadBlocks of {} parts", parts);
  for (uint32_t i = 0; i < parts && r.ok(); ++i) {
    auto& part = m.parts.emplace_back();
    part.of = r.get<uint32_t>();
    part.place = r.get<uint32_t>();
    if (part.of >= m.ranks.size() || part.place > kBlocksMax) {
      return fail(Code::kOutOfRange, "ReadBlocks of block {} of rank {} of {}", part.place, part.of, m.ranks.size());
    }
  }
  return {};
}
Result<void> get(ByteReader& r, BlockData& m) {
  m.call = r.get<uint64_t>();
  m.offer_id = r.get<uint64_t>();
  m.part = r.get<uint32_t>();
  m.tokens = r.get<uint32_t>();
  m.generation = r.get<uint64_t>();
  m.span = get_span(r);
  m.last = r.get<uint8_t>() != 0;
  m.checksums = r.get_array<uint64_t>();
  return {};
}
Result<void> get(ByteReader& r, ErrorReply& m) {
  m.call = r.get<uint64_t>();
  m.offer_id = r.get<uint64_t>();
  const auto code = r.get<uint8_t>();
  m.code = code <= static_cast<uint8_t>(Code::kInternal) ? static_cast<Code>(code) : Code::kInternal;
  m.message = r.get_string();
  if (m.message.size() > kErrorTextMax) return fail(Code::kOutOfRange, "ErrorReply of {} bytes", m.message.size());
  return {};
}
Result<void> get(ByteReader& r, PushOpen& m) {
  m.grant_id = r.get<uint64_t>();
  m.push_id = r.get<uint64_t>();
  m.token_count = r.get<int64_t>();
  m.prompt = {r.get<uint64_t>(), r.get<uint64_t>()};
  m.has_state = r.get<uint8_t>() != 0;
  if (m.token_count < 1) return fail(Code::kOutOfRange, "PushOpen of {} tokens", m.token_count);
  return {};
}
Result<void> get(ByteReader& r, PushOpenReply& m) {
  m.grant_id = r.get<uint64_t>();
  m.skip_tokens = r.get<int64_t>();
  m.want_state = r.get<uint8_t>() != 0;
  if (m.skip_tokens < 0) return fail(Code::kOutOfRange, "PushOpenReply skips {} tokens", m.skip_tokens);
  return {};
}
Result<void> get(ByteReader& r, PushData& m) {
  m.grant_id = r.get<uint64_t>();
  m.rank = r.get<uint32_t>();
  m.state = r.get<uint8_t>() != 0;
  m.span = get_span(r);
  m.first_place = r.get<uint32_t>();
  m.place_count = r.get<uint32_t>();
  m.checksums = r.get_array<uint64_t>();
  if (m.place_count == 0 || m.first_place > kBlocksMax || m.place_count > kBlocksMax) {
    return fail(Code::kOutOfRange, "PushData of {} blocks from {}", m.place_count, m.first_place);
  }
  return {};
}
Result<void> get(ByteReader& r, PushEnd& m) {
  m.grant_id = r.get<uint64_t>();
  m.done = r.get<uint8_t>() != 0;
  m.last_token = r.get<int32_t>();
  return {};
}
Result<void> get(ByteReader& r, PushEndReply& m) {
  m.grant_id = r.get<uint64_t>();
  m.complete = r.get<uint8_t>() != 0;
  return {};
}

template <size_t kIndex = 0>
Result<Message> decode_as(uint16_t type, ByteReader& reader) {
  if constexpr (kIndex < std::variant_size_v<Message>) {
    if (type != kIndex + 1) return decode_as<kIndex + 1>(type, reader);
    std::variant_alternative_t<kIndex, Message> message;
    BATON_TRY(get(reader, message));
    BATON_TRY(reader.finish(message_name(type)));
    return message;
  } else {
    return fail(Code::kDataLoss, "hand-off message of unknown type {}", type);
  }
}

}  // namespace

uint64_t frame_check(uint16_t type, uint32_t payload_bytes, std::span<const std::byte> body) {
  return checked_hash(body, uint64_t{type} << 32 | payload_bytes);
}

std::vector<std::byte> encode_frame(const Message& message, uint32_t payload_bytes) {
  ByteWriter body;
  std::visit([&](const auto& m) { put(body, m); }, message);
  ByteWriter frame;
  frame.put(kFrameMagic);
  frame.put(kHandoffVersion);
  const auto type = static_cast<uint16_t>(message.index() + 1);
  frame.put(type);
  frame.put(static_cast<uint32_t>(body.size()));
  frame.put(payload_bytes);
  frame.put(frame_check(type, payload_bytes, body.view()));
  frame.put_bytes(body.view());
  return frame.take();
}

Result<Message> decode_body(uint16_t type, std::span<const std::byte> body) {
  ByteReader reader(body);
  return decode_as(type, reader);
}

}  // namespace baton::wire
