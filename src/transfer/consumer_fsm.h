// D's side of a pull hand-off as a pure state machine: messages and time in, actions out. No sockets, clocks, threads.
//
// A pull goes: wait for the peer (connect, Hello) -> ask for the offer -> move its blocks, verifying each -> completed.
// Every stage has a deadline and a bounded number of attempts; what was verified stays verified across attempts. A pull
// completes exactly once, and never while a copy into its blocks is outstanding.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kv/cache_layout.h"
#include "transfer/connector.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

using ConnectionId = uint64_t;
using PullId = uint64_t;

enum class TransportMode : uint8_t { kAuto, kShm, kTcp };

struct ConsumerFsmOptions {
  wire::EngineIdentity identity;
  bool allow_other_profile = false;
  TransportMode transport = TransportMode::kAuto;
  kv::CacheLayout layout;                              // ours
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
// Try to map the peer's arena, then call on_mapped().
struct MapArena {
  ConnectionId connection = 0;
  wire::ShmLocation location;
  int64_t block_count = 0;
  int64_t slot_count = 0;
};
struct CopyBlock {
  int32_t from = 0;  // block, or slot, in the peer's arena
  int32_t to = 0;    // in ours
  int32_t tokens = 0;
  uint64_t generation = 0;
  bool state = false;  // a slot of recurrent state
};
// Copy from the mapped arena, in order, verifying seal and checksums; then call on_copied().
struct CopyBlocks {
  PullId pull = 0;
  ConnectionId connection = 0;
  std::vector<CopyBlock> blocks;
};
struct Complete {
  PullResult result;
};
using ConsumerAction = std::variant<Connect, Disconnect, SendToPeer, MapArena, CopyBlocks, Complete>;

// Where the payload of a BlockData belongs.
struct DataTarget {
  PullId pull = 0;
  int32_t block = 0;  // or slot, in our arena
  bool state = false;
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
  // The first `good_blocks` of a CopyBlocks are stored and verified. An error of kFailedPrecondition says that the next
  // one was no longer sealed as promised, kDataLoss that it failed its checksum.
  void on_copied(PullId pull, size_t good_blocks, const Result<void>& outcome, TimePoint now);
  // Nothing: the payload is not wanted (any more) and must not be stored. Otherwise store and verify it, then call
  // on_stored() before any other event.
  std::optional<DataTarget> on_block_data(ConnectionId connection, const wire::BlockData& data, int64_t payload_bytes,
                                          TimePoint now);
  void on_stored(PullId pull, const wire::BlockData& data, int64_t payload_bytes, const Result<void>& outcome,
                 TimePoint now);
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  std::vector<ConsumerAction> take_actions() { return std::exchange(actions_, {}); }
  size_t live_pulls() const { return pulls_.size(); }

 private:
  enum class Stage : uint8_t { kWaitPeer, kWaitOffer, kMoving };
  struct Read {
    uint64_t call = 0;
    uint32_t end_item = 0;
  };
  struct PullState {
    Pull pull;
    std::string peer;
    Stage stage = Stage::kWaitPeer;
    TimePoint started, deadline;
    TimePoint wake;  // kWaitPeer: not before; else: no progress until here is a failed attempt
    int attempts = 0;
    uint64_t call = 0;            // of the OfferQuery
    uint64_t peer_nonce = 0;      // of the instance that made the offer
    ConnectionId connection = 0;  // the one the offer was asked for on
    wire::OfferReply offer;
    // Items are the blocks and then, where it is wanted, the state.
    uint32_t block_count = 0;  // of what is wanted
    uint32_t end_item = 0;
    uint32_t verified = 0;   // items from the start that are here
    uint32_t entries = 0;    // of item `verified` that are here (TCP)
    uint32_t requested = 0;  // items asked for (TCP)
    std::deque<Read> reads;
    bool in_turn = false;  // among the peer's turns
    bool copying = false;
    std::optional<Status> ending;  // ends with this once the copy is back
    int64_t bytes = 0;
  };
  struct Farewell {
    bool done = false;
    int attempts = 0;
    TimePoint next, give_up;
  };
  enum class PeerState : uint8_t { kIdle, kConnecting, kGreeting, kMapping, kReady };
  // P serves a connection's reads in order, also those whose pull has gone meanwhile.
  struct ReadUnderWay {
    uint64_t call = 0;
    uint32_t last_item = 0;
    uint32_t last_entries = 0;  // of last_item: one past the last entry
    TimePoint progress;         // asked, or the last frame of it, or now the first in line
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
    bool mapped = false;
    TimePoint heard, next_renew, idle_since;
    std::optional<TimePoint> answer_due;  // to a Renew: silence until here means that the peer has gone
    std::map<uint64_t, Farewell> farewells;
    std::map<uint64_t, TimePoint> held;
    std::set<PullId> pulls;
    std::deque<ReadUnderWay> reads;  // over TCP, in the order asked
    std::deque<PullId> turns;        // pulls that want to read
    bool has_work() const { return !farewells.empty() || !held.empty() || !pulls.empty(); }
  };
  using Peers = std::map<std::string, Peer>;

  // Peers: consumer_peers.cc
  Peer* peer_for(const wire::KvTransferParams& params, TimePoint now);
  Peer* by_connection(ConnectionId connection);
  void pump(Peer& peer, TimePoint now);
  void pump_ready(Peer& peer, TimePoint now);
  void send_renew(Peer& peer, TimePoint now);
  void greet(Peer& peer, const wire::HelloReply& reply, TimePoint now);
  void become_ready(Peer& peer, TimePoint now);
  void drop_connection(Peer& peer, const Status& why, bool terminal, TimePoint now);
  void add_farewell(Peer& peer, uint64_t offer_id, bool done, TimePoint now);
  void tick_peer(Peer& peer, TimePoint now);

  // Pulls: consumer_fsm.cc, consumer_moving.cc, consumer_reads.cc
  void ask_offer(Peer& peer, PullId id, PullState& pull, TimePoint now);
  Result<void> check_state(const PullState& pull, const wire::OfferReply& reply) const;
  void on_offer(PullId id, const wire::OfferReply& reply, TimePoint now);
  void on_error(Peer& peer, const wire::ErrorReply& error, TimePoint now);
  void on_renew_reply(Peer& peer, const wire::RenewReply& reply, TimePoint now);
  void move_on(PullId id, TimePoint now);
  void copy_slice(PullId id, PullState& pull);
  void want_reads(PullId id, PullState& pull, TimePoint now);
  void read_slice(Peer& peer, PullState& pull, TimePoint now);
  void give_turns(Peer& peer, TimePoint now);
  void note_frame(Peer& peer, const wire::BlockData& data, TimePoint now);
  void end_read(Peer& peer, uint64_t call, TimePoint now);
  void end_stuck_reads(Peer& peer, TimePoint now);
  bool waits_for_others(PullId id, const PullState& pull) const;
  void retry(PullId id, const Status& why, TimePoint now);
  void finish(PullId id, Result<void> outcome, TimePoint now);
  PullId pull_by_call(const Peer& peer, uint64_t call) const;
  CopyBlock item(const PullState& pull, uint32_t index) const;
  const kv::PagedGeometry& geometry_of(bool state) const;
  uint32_t slice_end(const PullState& pull, uint32_t first) const;
  int block_size() const { return options_.identity.layout.block_size; }
  void send(const Peer& peer, wire::Message message);

  ConsumerFsmOptions options_;
  uint64_t next_call_;
  ConnectionId next_connection_ = 1;
  PullId next_pull_ = 1;
  Peers peers_;
  std::map<PullId, PullState> pulls_;
  std::map<std::string, PullId> pull_ids_;  // by request
  std::vector<ConsumerAction> actions_;
};

}  // namespace baton::transfer
