// D's side of a pull hand-off as a pure state machine: messages and time in, actions out. No sockets, clocks, threads.
//
// A pull has a leg for each process of the prefill engine. A leg goes: wait for the peer (connect, Hello) -> ask for
// the offer -> move what that process holds, part by part, verifying each -> done; the pull is complete when all legs
// are. Every stage has a deadline and a bounded number of attempts; what was verified stays verified across attempts. A
// pull completes exactly once, and never while a copy into its blocks is outstanding.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transfer/connector.h"
#include "transfer/reshard_plan.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

using ConnectionId = uint64_t;
using PullId = uint64_t;
using LegId = uint64_t;

enum class TransportMode : uint8_t { kAuto, kShm, kTcp };

struct ConsumerFsmOptions {
  wire::EngineIdentity identity;
  wire::CompareOptions allow;  // what of identities may differ
  TransportMode transport = TransportMode::kAuto;
  std::shared_ptr<const Holdings> holdings;            // ours: all of the model
  wire::GridClaim claim;                               // what our configuration says of prefill engines
  int64_t slice_bytes = 8 << 20;                       // of one copy, and of one TCP read; two reads are under way
  Duration connect_timeout = std::chrono::seconds(5);  // until Hello is answered
  Duration reply_timeout = std::chrono::seconds(3);    // without any progress of a pull
  Duration pull_timeout = std::chrono::seconds(120);   // of a whole pull
  Duration backoff = std::chrono::milliseconds(50);    // doubled per attempt
  Duration hold_timeout = std::chrono::minutes(10);    // hold() without start() or decline()
  Duration idle_timeout = std::chrono::seconds(60);    // of a connection without work
  int attempts_max = 3;
  size_t peers_max = 1024;
  // Pulls take turns at these. Half of what P allows: it hears of a read's end later than we do.
  size_t reads_per_connection = wire::kReadsMax / 2;
  uint64_t first_call = 1;  // calls are numbered from here
};

struct Connect {
  ConnectionId connection = 0;
  std::string host;
  int port = 0;
};
struct Disconnect {
  ConnectionId connection = 0;
};
struct SendToPeer {
  ConnectionId connection = 0;
  wire::Message message;
};
// Try to map the peer's arenas, then call on_mapped().
struct MapArena {
  ConnectionId connection = 0;
  wire::ShmLocation location;
  std::shared_ptr<const Holdings> holdings;  // the peer's
};
// Copy from the mapped arenas, in order, verifying seal and checksums; then call on_copied().
struct CopyParts {
  LegId leg = 0;
  ConnectionId connection = 0;
  std::shared_ptr<const ReshardPlan> plan;  // shared: the copy may outlast the pull's interest in it
  std::vector<PartCopy> parts;
};
struct Complete {
  PullResult result;
};
using ConsumerAction = std::variant<Connect, Disconnect, SendToPeer, MapArena, CopyParts, Complete>;

// Where the payload of a BlockData belongs: entries [first, first + count) of a span of `part`.
struct DataTarget {
  LegId leg = 0;
  std::shared_ptr<const ReshardPlan> plan;
  PartCopy part;
  const RouteSpan* span = nullptr;  // of the plan
  uint32_t first = 0;
  uint32_t count = 0;
};

class ConsumerFsm {
 public:
  explicit ConsumerFsm(ConsumerFsmOptions options) : options_(std::move(options)), next_call_(options_.first_call) {}

  void start(Pull pull, TimePoint now);
  void cancel(const std::string& request_id, TimePoint now);
  void decline(const wire::KvTransferParams& params, TimePoint now);
  // Renews the offer's lease until start() or decline() with the same offer.
  void hold(const wire::KvTransferParams& params, TimePoint now);

  void on_connected(ConnectionId connection, TimePoint now);
  // Connecting failed, or the connection broke.
  void on_disconnected(ConnectionId connection, const Status& why, TimePoint now);
  // Any message but BlockData.
  void on_message(ConnectionId connection, const wire::Message& message, TimePoint now);
  void on_mapped(ConnectionId connection, const Result<void>& outcome, TimePoint now);
  // The first `good_parts` of a CopyParts are stored and verified. An error of kFailedPrecondition says that the next
  // one was no longer sealed as promised, kDataLoss that it failed its checksum.
  void on_copied(LegId leg, size_t good_parts, const Result<void>& outcome, TimePoint now);
  // Nothing: the payload is not wanted (any more) and must not be stored. Otherwise store and verify it, then call
  // on_stored() before any other event.
  std::optional<DataTarget> on_block_data(ConnectionId connection, const wire::BlockData& data, int64_t payload_bytes,
                                          TimePoint now);
  void on_stored(LegId leg, const wire::BlockData& data, int64_t payload_bytes, const Result<void>& outcome,
                 TimePoint now);
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  // The largest payload that the peer of this connection may send.
  int64_t payload_bytes_max(ConnectionId connection);

  std::vector<ConsumerAction> take_actions() { return std::exchange(actions_, {}); }
  size_t live_pulls() const { return pulls_.size(); }

 private:
  enum class Stage : uint8_t { kWaitPeer, kWaitOffer, kMoving, kDone };
  struct Read {
    uint64_t call = 0;
    uint64_t first_item = 0, end_item = 0;
  };
  // What one process of P holds.
  struct Leg {
    PullId pull = 0;
    std::string peer;
    bool leader = false;  // the process that kv_transfer_params name
    Stage stage = Stage::kWaitPeer;
    TimePoint wake;  // kWaitPeer: not before; else: no progress until here is a failed attempt
    int attempts = 0;
    std::optional<TimePoint> unknown_until;  // a member may hear of an offer later than we do
    uint64_t call = 0;                       // of the OfferQuery
    uint64_t peer_nonce = 0;                 // of the instance that made the offer
    ConnectionId connection = 0;             // the one the offer was asked for on
    wire::OfferReply offer;
    std::shared_ptr<const ReshardPlan> plan;
    // Items are the plan's parts of blocks that are wanted, from first_part on, and then those of the state.
    uint64_t first_part = 0, block_items = 0, end_item = 0;
    uint64_t verified = 0;   // items from the start that are here
    size_t span = 0;         // of item `verified`: the one under way (TCP),
    uint32_t entries = 0;    // and of it, what is here
    uint64_t requested = 0;  // items asked for (TCP)
    std::deque<Read> reads;
    bool in_turn = false;  // among the peer's turns
    bool copying = false;
    int64_t bytes = 0;
  };
  struct PullState {
    Pull pull;
    TimePoint started, deadline;
    std::vector<LegId> legs;
    bool legs_known = false;       // all of them
    std::optional<Status> ending;  // ends with this once no copy is under way
  };
  // spread: to be told to the engine's other processes too, once they are known.
  struct Farewell {
    bool done = false;
    bool spread = false;
    int attempts = 0;
    TimePoint next, give_up;
  };
  enum class PeerState : uint8_t { kIdle, kConnecting, kGreeting, kMapping, kReady };
  struct Held {
    TimePoint until;
    bool spread = false;
  };
  // P serves a connection's reads in order, also those whose pull has gone meanwhile.
  struct ReadUnderWay {
    uint64_t call = 0;
    TimePoint progress;  // asked, or the last frame of it, or now the first in line
  };
  struct Peer {
    std::string host;
    int port = 0;
    PeerState state = PeerState::kIdle;
    ConnectionId connection = 0;
    TimePoint deadline;    // of connecting, greeting, mapping
    TimePoint not_before;  // kIdle: back-off
    int failures = 0;
    wire::HelloReply hello;
    std::shared_ptr<const Holdings> holdings;
    std::map<uint32_t, std::shared_ptr<const ReshardPlan>> plans;  // by choice of replicas
    bool mapped = false;
    TimePoint heard, next_renew, idle_since;
    std::optional<TimePoint> answer_due;  // to a Renew: silence until here means that the peer has gone
    std::map<uint64_t, Farewell> farewells;
    std::map<uint64_t, Held> held;
    std::set<LegId> legs;
    std::deque<ReadUnderWay> reads;  // over TCP, in the order asked
    std::deque<LegId> turns;         // that want to read
    bool has_work() const { return !farewells.empty() || !held.empty() || !legs.empty(); }
  };
  using Peers = std::map<std::string, Peer>;

  // Peers: consumer_peers.cc
  Peer* peer_for(const std::string& host, int port, TimePoint now);
  Peer* by_connection(ConnectionId connection);
  void pump(Peer& peer, TimePoint now);
  void pump_ready(Peer& peer, TimePoint now);
  void send_renew(Peer& peer, TimePoint now);
  void spread_hold(Peer& peer, TimePoint now);
  void spread_farewell(Peer& peer, uint64_t offer_id, bool done, TimePoint now);
  void greet(Peer& peer, const wire::HelloReply& reply, TimePoint now);
  Result<void> take_layout(Peer& peer, const wire::HelloReply& reply) const;
  void become_ready(Peer& peer, TimePoint now);
  void drop_connection(Peer& peer, const Status& why, bool terminal, TimePoint now);
  void add_farewell(Peer& peer, uint64_t offer_id, Farewell farewell, TimePoint now);
  void tick_peer(Peer& peer, TimePoint now);

  // Pulls: consumer_fsm.cc
  LegId add_leg(PullId id, Peer& peer, bool leader, TimePoint now);
  Result<bool> add_members(PullId id, const Peer& leader, TimePoint now);
  void pump_members(PullId id, TimePoint now);
  Result<void> check_instance(const Leg& leg, const Peer& peer) const;
  void ask_offer(Peer& peer, LegId id, TimePoint now);
  Result<void> check_offer(const Leg& leg, const wire::OfferReply& reply) const;
  void on_offer(LegId id, const wire::OfferReply& reply, TimePoint now);
  void on_error(Peer& peer, const wire::ErrorReply& error, TimePoint now);
  void on_renew_reply(Peer& peer, const wire::RenewReply& reply, TimePoint now);
  void retry(LegId id, const Status& why, TimePoint now);
  void end_leg(LegId id, Result<void> outcome, TimePoint now);
  void end_pull(PullId id, Status why, TimePoint now);
  void complete(PullId id, Result<void> outcome, TimePoint now);
  Result<void> check_complete(const PullState& pull) const;
  int64_t valid_tokens(const PullState& pull) const;
  LegId leg_by_call(const Peer& peer, uint64_t call) const;
  PullState& pull_of(const Leg& leg) { return pulls_.at(leg.pull); }
  const PullState& pull_of(const Leg& leg) const { return pulls_.at(leg.pull); }
  void tick_legs(TimePoint now);

  // Bytes: consumer_moving.cc, consumer_reads.cc
  void move_on(LegId id, TimePoint now);
  void copy_slice(LegId id, Leg& leg);
  PartCopy item(const Leg& leg, uint64_t index) const;
  uint64_t slice_end(const Leg& leg, uint64_t first) const;
  int64_t item_bytes(const Leg& leg, uint64_t index) const;
  ReshardPlan::Part item_part(const Leg& leg, uint64_t index) const;
  void want_reads(LegId id, Leg& leg, TimePoint now);
  void read_slice(Peer& peer, Leg& leg, TimePoint now);
  void give_turns(Peer& peer, TimePoint now);
  void note_frame(Peer& peer, const wire::BlockData& data, TimePoint now);
  void end_read(Peer& peer, uint64_t call, TimePoint now);
  void end_stuck_reads(Peer& peer, TimePoint now);
  bool waits_for_others(LegId id, const Leg& leg) const;
  void send(const Peer& peer, wire::Message message);

  ConsumerFsmOptions options_;
  uint64_t next_call_;
  ConnectionId next_connection_ = 1;
  PullId next_pull_ = 1;
  LegId next_leg_ = 1;
  Peers peers_;
  std::map<PullId, PullState> pulls_;
  std::map<LegId, Leg> legs_;
  std::map<std::string, PullId> pull_ids_;  // by request
  std::vector<ConsumerAction> actions_;
};

}  // namespace baton::transfer
