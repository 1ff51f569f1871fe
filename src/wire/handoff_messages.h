// Messages of a hand-off between D (asks) and P (answers), on one connection per pair of engines.
//
// A frame is a 24-byte header, a body (the message) and, for BlockData and PushData alone, a payload of KV bytes. All
// little-endian.
//   u32 magic "BTKV" | u16 version | u16 type | u32 body bytes | u32 payload bytes | u64 check of type, payload bytes,
//   body
// The check is XXH3-64: TCP's own sum of 16 bits lets one altered segment in 65536 pass, and a block number that
// changed on its way would name another block whose checksums are right. What a payload holds has checksums per unit.
// `call` is drawn by D; an answer repeats it. Every request may be sent again: P answers it again.
// What decode() returns obeys the bounds below, whatever the bytes were.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "wire/handshake.h"
#include "wire/prompt_digest.h"

namespace baton::wire {

inline constexpr uint32_t kFrameMagic = 0x564B5442;  // "BTKV"
inline constexpr size_t kFrameHeaderBytes = 24;
inline constexpr uint32_t kBodyBytesMax = 4 << 20;
inline constexpr uint32_t kFirstBodyBytesMax = 1 << 20;  // before the peer has said who it is
inline constexpr uint32_t kPayloadBytesMax = 64 << 20;   // one entry of one block, or of one slot, at most
inline constexpr uint32_t kBlocksMax = 256 * 1024;       // of one offer
inline constexpr uint32_t kRenewalsMax = 64 * 1024;      // offers in one heartbeat
inline constexpr uint32_t kErrorTextMax = 4096;
inline constexpr uint32_t kMembersMax = 256;          // processes of an engine besides the first
inline constexpr uint32_t kReadPartsMax = 4096;       // of one ReadBlocks
inline constexpr uint32_t kReadSpansMax = 64 * 1024;  // of one ReadBlocks, all ranks together
inline constexpr uint32_t kReadsMax = 8;              // under way on one connection; P refuses more

// Where a process of the same host finds P's arena: /proc/<pid>/fd/<fd>, to be believed only if the header page there
// repeats nonce and sizes.
struct ShmLocation {
  std::string boot_id;  // of the host's kernel; another one means another host
  int64_t pid = 0;
  int32_t fd = -1;
  std::array<uint64_t, 2> nonce{};
  uint64_t data_bytes = 0;
  uint64_t table_bytes = 0;
  bool operator==(const ShmLocation&) const = default;
};

// A process of an engine, as a peer reaches it.
struct HandoffAddress {
  std::string host;
  int32_t port = 0;
  bool operator==(const HandoffAddress&) const = default;
};

struct Hello {
  EngineIdentity identity;
};
struct HelloReply {
  EngineIdentity identity;
  int64_t block_count = 0;  // of each rank's arena
  int64_t slot_count = 0;   // of recurrent state, behind the blocks
  int64_t lease_ms = 0;
  std::optional<ShmLocation> shm;  // absent: TCP only
  // From the process that kv_transfer_params name: the others of its engine. An offer is known to all of them by one
  // id, each hands over what its own ranks hold, and each is told of its end.
  std::vector<HandoffAddress> members;
};
struct OfferQuery {
  uint64_t call = 0;
  uint64_t offer_id = 0;
};
struct OfferReply {
  uint64_t call = 0;
  uint64_t offer_id = 0;
  int64_t token_count = 0;
  std::vector<int32_t> blocks;        // in prompt order, the same on all ranks
  std::vector<uint64_t> generations;  // of these blocks, as sealed: the same on all ranks
  PromptDigest prompt{};              // of the tokens whose KV this is
  // Recurrent state of all tokens but the last, which D computes itself; -1: there is none.
  int32_t state_slot = -1;
  uint64_t state_generation = 0;
};
struct Renew {
  uint64_t call = 0;
  std::vector<uint64_t> offer_ids;
};
struct RenewReply {
  uint64_t call = 0;
  std::vector<uint64_t> rejected;  // their leases have ended: the KV is lost
};
// D has all it wants, or wants nothing (any more): P may free.
struct EndOffer {
  uint64_t call = 0;
  uint64_t offer_id = 0;
  bool done = false;  // false: aborted
};
struct EndReply {
  uint64_t call = 0;
  uint64_t offer_id = 0;
  bool known = false;  // false: ended before, or never seen. Harmless.
};
// Units [first_unit, first_unit + unit_count) of each of the entries [first_entry, first_entry + entry_count).
struct UnitSpan {
  uint32_t first_entry = 0;
  uint32_t entry_count = 0;
  uint32_t first_unit = 0;
  uint32_t unit_count = 0;
  bool operator==(const UnitSpan&) const = default;
};
// What D wants of a rank's blocks, or of its state.
struct ReadRank {
  uint32_t rank = 0;
  bool state = false;
  std::vector<UnitSpan> spans;
};
struct ReadPart {
  uint32_t of = 0;     // index into ReadBlocks::ranks
  uint32_t place = 0;  // of the block within the offer; 0 of a state
};
struct ReadBlocks {
  uint64_t call = 0;
  uint64_t offer_id = 0;
  std::vector<ReadRank> ranks;
  std::vector<ReadPart> parts;
};
// Of part `part` of a ReadBlocks: a piece of one of its spans, or the whole span. The payload holds, in the order
// (entry, part, unit), the first `tokens` tokens of each unit; checksums are per (entry, unit), in that order. A read
// is answered part by part, span by span, entry by entry.
struct BlockData {
  uint64_t call = 0;
  uint64_t offer_id = 0;
  uint32_t part = 0;
  uint32_t tokens = 0;  // 1 of the state
  uint64_t generation = 0;
  UnitSpan span;
  bool last = false;  // nothing more comes of this read
  std::vector<uint64_t> checksums;
};
// The request `call` failed; offer_id is 0 where it is not about one offer. After call 0 the connection is closed.
struct ErrorReply {
  uint64_t call = 0;
  uint64_t offer_id = 0;
  Code code = Code::kInternal;
  std::string message;
};

// A layerwise hand-off, where P connects and writes, D answers. The grant is D's: blocks that wait for one prompt's KV.
// Every process of P has a connection of its own, and hands over what its ranks hold.
struct PushOpen {
  uint64_t grant_id = 0;
  uint64_t push_id = 0;  // drawn by P for this request, the same in all its processes; never 0
  int64_t token_count = 0;
  PromptDigest prompt{};  // of these tokens
  bool has_state = false;
};
struct PushOpenReply {
  uint64_t grant_id = 0;
  int64_t skip_tokens = 0;  // whole blocks that D has already
  bool want_state = false;
};
// Units of a rank of P in consecutive blocks of the prompt: the payload is that of each block in turn, as BlockData has
// it, and the checksums are per (block, entry, unit). Or, with `state`, of the recurrent state: first_place 0,
// place_count 1. How many tokens a block has follows from its place.
struct PushData {
  uint64_t grant_id = 0;
  uint32_t rank = 0;  // of this process of P
  bool state = false;
  UnitSpan span;
  uint32_t first_place = 0;  // of the blocks within the prompt, counted as the rank's own
  uint32_t place_count = 0;
  std::vector<uint64_t> checksums;
};
struct PushEnd {
  uint64_t grant_id = 0;
  bool done = false;       // false: P has given the request up
  int32_t last_token = 0;  // the token that P sampled after the prompt
};
struct PushEndReply {
  uint64_t grant_id = 0;
  bool complete = false;  // all that this process had to give is there and verified
};

using Message =
    std::variant<Hello, HelloReply, OfferQuery, OfferReply, Renew, RenewReply, EndOffer, EndReply, ReadBlocks,
                 BlockData, ErrorReply, PushOpen, PushOpenReply, PushData, PushEnd, PushEndReply>;

struct FrameHeader {
  uint16_t type = 0;  // 1 + index within Message
  uint32_t body_bytes = 0;
  uint32_t payload_bytes = 0;
  uint64_t check = 0;
};

uint64_t frame_check(uint16_t type, uint32_t payload_bytes, std::span<const std::byte> body);
// Header and body of a message that will be followed by payload_bytes of payload.
std::vector<std::byte> encode_frame(const Message& message, uint32_t payload_bytes = 0);
// kMismatch for another version, kDataLoss for what isn't a frame, kOutOfRange beyond the bounds.
Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                        uint32_t body_bytes_max = kBodyBytesMax);
// kDataLoss for a body that is not the one the header was made for; else as below.
Result<Message> decode_checked(const FrameHeader& header, std::span<const std::byte> body);
Result<Message> decode_body(uint16_t type, std::span<const std::byte> body);
std::string_view message_name(uint16_t type);

}  // namespace baton::wire
