// P's side of a pull hand-off as a pure state machine: messages and time in, actions out. No sockets, clocks, threads.
//
// An offer lives from offer() until one of: D is done, D aborts, its lease ends, the engine revokes it. The lease of an
// offer whose D has lost its connection is cut to a sixth: a D that lives is back by then, and one that died does not
// keep our memory for the rest of it. Then, as soon
// as no seal or send reads its blocks any more, they are reopened (their generation moves on, so that late readers
// reject what they copy) and released, exactly once.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transfer/connector.h"
#include "transfer/holdings.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

using ConnectionId = uint64_t;

struct ProducerFsmOptions {
  wire::HelloReply hello;  // who we are, and where the arenas are
  std::shared_ptr<const Holdings> holdings;
  wire::GridClaim claim;       // what our configuration says of decode engines
  wire::CompareOptions allow;  // what of identities may differ
  Duration lease = std::chrono::seconds(30);
  size_t offers_max = 8192;
  size_t reads_per_connection_max = wire::kReadsMax;
};

enum class EndReason : uint8_t { kDone, kAborted, kExpired, kRevoked };

struct BlockSeal {
  int32_t block = 0;
  int32_t tokens = 0;  // over all context ranks
  uint64_t generation = 0;
  bool state = false;  // `block` is a slot of recurrent state
};

// Seal these blocks, then call on_sealed() with their generations. Before that the blocks are not released.
struct SealBlocks {
  uint64_t offer_id = 0;
  std::vector<BlockSeal> blocks;
};
struct SendToConnection {
  ConnectionId connection = 0;
  wire::Message message;
};
// One block, or slot, of one rank; what of it: an index into SendBlocks::ranks.
struct SendPart {
  uint32_t of = 0;
  int32_t block = 0;
  int32_t tokens = 0;  // on that rank
  uint64_t generation = 0;
};
// Send one or more BlockData per part and span, in order, then call on_blocks_sent(). Also when the connection breaks.
struct SendBlocks {
  ConnectionId connection = 0;
  uint64_t call = 0;
  uint64_t offer_id = 0;
  std::vector<wire::ReadRank> ranks;
  std::vector<SendPart> parts;
};
struct ReopenBlocks {
  std::vector<int32_t> blocks;
  std::vector<int32_t> slots;
};
struct Release {
  std::string request_id;
  EndReason reason = EndReason::kDone;
};
struct CloseConnection {
  ConnectionId connection = 0;
  Status reason;
};
using ProducerAction = std::variant<SealBlocks, SendToConnection, SendBlocks, ReopenBlocks, Release, CloseConnection>;

class ProducerFsm {
 public:
  explicit ProducerFsm(ProducerFsmOptions options) : options_(std::move(options)) {}

  // The processes besides ours, for peers that say Hello from now on.
  void set_members(std::vector<wire::HandoffAddress> members) { options_.hello.members = std::move(members); }
  // `id` is new and not 0; offer.blocks cover offer.token_count tokens.
  void offer(uint64_t id, Offer offer, TimePoint now);
  void revoke(const std::string& request_id);
  void on_sealed(uint64_t offer_id, const std::vector<uint64_t>& generations, TimePoint now);
  void on_message(ConnectionId connection, const wire::Message& message, TimePoint now);
  void on_closed(ConnectionId connection, TimePoint now);
  void on_blocks_sent(ConnectionId connection, uint64_t offer_id);
  // Ends expired leases. Call at next_deadline() or later.
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  std::vector<ProducerAction> take_actions() { return std::exchange(actions_, {}); }
  size_t live_offers() const { return offers_.size(); }
  int64_t held_blocks() const { return static_cast<int64_t>(block_holders_.size()); }

 private:
  struct Query {
    ConnectionId connection;
    uint64_t call;
  };
  struct LiveOffer {
    std::string request_id;
    int64_t token_count = 0;
    wire::PromptDigest prompt{};
    std::vector<BlockSeal> blocks;  // and then the state, if there is one
    TimePoint expires;
    ConnectionId heard_on = 0;  // the last that asked for it, read it or renewed its lease
    bool sealed = false;
    int sends = 0;  // SendBlocks not yet reported as sent
    std::optional<EndReason> ended;
    std::vector<Query> waiting;  // asked before the seal was there
  };
  using Offers = std::map<uint64_t, LiveOffer>;
  struct Connection {
    size_t reads = 0;
  };

  void on(ConnectionId connection, const wire::Hello& hello);
  void on(ConnectionId connection, const wire::OfferQuery& query, TimePoint now);
  void on(ConnectionId connection, const wire::Renew& renew, TimePoint now);
  void on(ConnectionId connection, const wire::EndOffer& end);
  void on(ConnectionId connection, const wire::ReadBlocks& read, TimePoint now);
  Result<SendPart> send_part(const LiveOffer& offer, const wire::ReadBlocks& read, const wire::ReadPart& part) const;
  LiveOffer* find(uint64_t offer_id, TimePoint now);
  LiveOffer* find_for(ConnectionId connection, uint64_t offer_id, TimePoint now);
  void answer_query(uint64_t offer_id, const LiveOffer& offer, Query query);
  void end(Offers::iterator offer, EndReason reason);
  void release_if_quiet(Offers::iterator offer);
  void send(ConnectionId connection, wire::Message message);
  void send_error(ConnectionId connection, uint64_t call, uint64_t offer_id, Code code, std::string message);
  void close(ConnectionId connection, Status reason);

  ProducerFsmOptions options_;
  Offers offers_;
  std::deque<uint64_t> ended_early_;                // by D, before this process heard of the offer from its engine
  std::map<int32_t, int> block_holders_;            // live offers per block; prefix-cache hits share blocks
  std::map<ConnectionId, Connection> connections_;  // those that said who they are
  std::vector<ProducerAction> actions_;
};

}  // namespace baton::transfer
