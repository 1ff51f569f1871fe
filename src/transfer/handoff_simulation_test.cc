// Both state machines against each other in a seeded world that drops, duplicates, reorders, delays and corrupts
// messages, breaks connections, restarts P, reuses freed blocks at once and splits every copy in two. Checked: every
// pull ends; every offer's blocks are released exactly once; nothing unverified or stale is ever accepted; no write
// reaches a block of D after its pull completed.
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "transfer/fsm_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kBlocks = 24;
constexpr int kSlots = 6;

struct Wild {
  double drop = 0, duplicate = 0, corrupt = 0, disconnect = 0, restart = 0, cancel = 0;
};

// A block of P, or, behind all blocks, a slot of recurrent state: what is in it, under which generation (odd: open).
struct RemoteBlock {
  uint64_t content = 0;
  uint64_t generation = 0;
  int tokens = 0;
};

class World {
 public:
  World(uint64_t seed, Wild wild, bool shm) : random_(seed), wild_(wild), shm_(shm) { boot(); }

  void run(int requests) {
    for (int i = 0; i < requests; ++i) at(now_ + milliseconds(random_() % 3000), [this] { begin_request(); });
    // The guard is far beyond what the deadlines allow.
    for (int steps = 0; steps < 200000 && !events_.empty(); ++steps) step();
    ASSERT_TRUE(events_.empty()) << "the world never comes to rest";
    EXPECT_EQ(completed_, started_);
    EXPECT_TRUE(pulling_.empty());
    EXPECT_EQ(producer_->live_offers(), 0u);
    for (const auto& [request, count] : releases_) EXPECT_EQ(count, 1) << request;
    EXPECT_EQ(releases_.size(), offered_);
    EXPECT_TRUE(held_.empty());
  }
  int succeeded() const { return succeeded_; }
  int states() const { return states_; }

 private:
  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  void at(TimePoint when, std::function<void()> event) { events_.emplace(when, std::move(event)); }
  TimePoint soon() { return now_ + std::chrono::microseconds(10 + random_() % 20000); }

  void boot() {
    ++nonce_;
    auto hello = hello_reply(shm_);
    hello.identity.instance_nonce = nonce_;
    hello.block_count = kBlocks;
    hello.slot_count = kSlots;
    hello.lease_ms = 3000;
    producer_ = std::make_unique<ProducerFsm>(ProducerFsmOptions{.hello = hello, .lease = seconds(3)});
    remote_.assign(kBlocks + kSlots, {});
    free_.clear();
    free_slots_.clear();
    for (int s = 0; s < kSlots; ++s) free_slots_.insert(kBlocks + s);
    for (int b = 0; b < kBlocks; ++b) free_.insert(b);
    held_.clear();
  }

  void step() {
    auto first = events_.begin();
    now_ = std::max(now_, first->first);
    auto event = std::move(first->second);
    events_.erase(first);
    event();
    act();
  }

  // Timers are one event each, planned again after every step.
  void act() {
    for (bool busy = true; busy;) {
      busy = false;
      for (auto& action : producer_->take_actions()) {
        busy = true;
        std::visit([&](auto& a) { on(a); }, action);
      }
      for (auto& action : consumer_.take_actions()) {
        busy = true;
        std::visit([&](auto& a) { on(a); }, action);
      }
    }
    plan_timer(producer_timer_, producer_->next_deadline(), [this] { producer_->tick(now_); });
    plan_timer(consumer_timer_, consumer_.next_deadline(), [this] { consumer_.tick(now_); });
  }
  void plan_timer(std::optional<TimePoint>& planned, std::optional<TimePoint> next, std::function<void()> tick) {
    if (!next || (planned && *planned <= *next)) return;
    planned = std::max(*next, now_);
    at(*planned, [&planned, tick] {
      planned.reset();
      tick();
    });
  }

  void begin_request() {
    const int blocks = 1 + static_cast<int>(random_() % 5);
    if (free_.size() < static_cast<size_t>(blocks)) return at(now_ + milliseconds(200), [this] { begin_request(); });
    const std::string request = "r" + std::to_string(started_++);
    Offer offer{.request_id = request, .token_count = blocks * kBlockSize - static_cast<int64_t>(random_() % 3)};
    Pull pull{.request_id = request, .token_count = offer.token_count};
    std::vector<uint64_t> contents;
    // Takes and fills one of P's; returns it and a new one of D's.
    const auto fill = [&](std::set<int>& free) {
      const int b = *free.begin();
      free.erase(free.begin());
      // Writing into a block that is sealed for a reader would be P's own bug.
      EXPECT_TRUE(remote_[b].generation == 0 || remote_[b].generation % 2 == 1);
      remote_[b].content = ++content_;
      contents.push_back(content_);
      held_[request].push_back(b);
      local_.push_back(0);
      local_open_.push_back(true);
      return std::pair(b, next_local_++);
    };
    for (int i = 0; i < blocks; ++i) {
      const auto [there, here] = fill(free_);
      offer.blocks.push_back(BlockId(there));
      pull.blocks.push_back(BlockId(here));
    }
    if (!free_slots_.empty() && chance() < 0.5) {
      const auto [there, here] = fill(free_slots_);
      offer.state_slot = there - kBlocks;
      pull.state_slot = here;
    }
    const uint64_t id = ++offer_id_;
    ++offered_;
    producer_->offer(id, offer, now_);
    pull.params.remote_engine_id = "p";
    pull.params.remote_host = "p";
    pull.params.remote_port = 1;
    pull.params.baton_offer_id = id;
    if (chance() < 0.1) {
      at(now_ + milliseconds(random_() % 500), [this, params = pull.params] { consumer_.decline(params, now_); });
      ++completed_;
      return;
    }
    pulling_[request] = {pull, contents};
    at(now_ + milliseconds(random_() % 4000), [this, pull] { consumer_.start(pull, now_); });
    if (chance() < wild_.cancel) {
      at(now_ + milliseconds(random_() % 6000), [this, request] { consumer_.cancel(request, now_); });
    }
  }

  // ---- P's driver
  void on(SealBlocks& seal) {
    at(soon(), [this, seal, nonce = nonce_] {
      if (nonce != nonce_) return;
      std::vector<uint64_t> generations;
      for (const auto& b : seal.blocks) {
        auto& block = remote(b.block, b.state);
        block.generation = (block.generation | 1) + 1;
        block.tokens = b.tokens;
        generations.push_back(block.generation);
      }
      producer_->on_sealed(seal.offer_id, generations, now_);
    });
  }
  void on(SendToConnection& send) { to_consumer(send.connection, send.message); }
  void on(SendBlocks& send) {
    // Bytes are read in two steps, the second as late as the send itself. Sends go out in order unless the world is
    // wild.
    const bool ordered = wild_.drop == 0 && wild_.duplicate == 0;
    const TimePoint when = ordered ? std::max(send_at_ + std::chrono::microseconds(1), soon()) : soon();
    send_at_ = when;
    at(when, [this, send, nonce = nonce_] {
      if (nonce != nonce_) return;
      for (size_t i = 0; i < send.blocks.size(); ++i) {
        const bool state = send.blocks[i].state;
        const auto& block = remote(send.blocks[i].block, state);
        EXPECT_EQ(block.generation, send.blocks[i].generation) << "a block was reopened under a send";
        wire::BlockData data{.call = send.call,
                             .offer_id = send.offer_id,
                             .block = send.first_block + static_cast<uint32_t>(i),
                             .tokens = static_cast<uint32_t>(send.blocks[i].tokens),
                             .generation = block.generation,
                             .entry_count = kLayers,
                             .checksums = std::vector<uint64_t>(
                                 state ? kLayout.states.units_per_block() : kLayers * kHeads, block.content)};
        const int64_t bytes = state ? kStateBytes : kBlockBytes / kBlockSize * data.tokens;
        data_to_consumer(send.connection, data, bytes, block.content);
      }
      producer_->on_blocks_sent(send.connection, send.offer_id);
    });
  }
  void on(ReopenBlocks& reopen) {
    for (int32_t b : reopen.blocks) remote(b, false).generation |= 1;
    for (int32_t s : reopen.slots) remote(s, true).generation |= 1;
  }
  void on(Release& release) {
    ++releases_[release.request_id];
    for (int b : held_[release.request_id]) {
      EXPECT_TRUE((b < kBlocks ? free_ : free_slots_).insert(b).second);
      if (chance() < 0.5) remote_[b].content = ++content_;  // reused at once
    }
    held_.erase(release.request_id);
  }
  void on(CloseConnection& close) { break_connection(close.connection); }

  // ---- D's driver
  void on(Connect& connect) {
    at(soon(), [this, id = connect.connection] {
      if (chance() < wild_.disconnect) return consumer_.on_disconnected(id, {Code::kUnavailable, "refused"}, now_);
      open_.insert(id);
      consumer_.on_connected(id, now_);
    });
  }
  void on(Disconnect& disconnect) {
    if (open_.erase(disconnect.connection) != 0) {
      at(soon(), [this, id = disconnect.connection] { producer_->on_closed(id); });
    }
  }
  void on(SendToPeer& send) { to_producer(send.connection, send.message); }
  void on(MapArena& map) {
    mapped_[map.connection] = nonce_;
    consumer_.on_mapped(map.connection, {}, now_);
  }
  void on(CopyBlocks& copy) {
    at(soon(), [this, copy] { copy_first_half(copy, 0); });
  }
  // One block: read what is there, let the world go on, then look at the generation again.
  void copy_first_half(CopyBlocks copy, size_t index) {
    if (index == copy.blocks.size()) return consumer_.on_copied(copy.pull, index, {}, now_);
    const auto& block = copy.blocks[index];
    const auto& from = remote(block.from, block.state);
    if (mapped_[copy.connection] != nonce_ || from.generation != block.generation) {
      return consumer_.on_copied(copy.pull, index, fail(Code::kFailedPrecondition, "stale"), now_);
    }
    const uint64_t early = from.content;
    at(soon(), [this, copy, index, early] { copy_second_half(copy, index, early); });
  }
  void copy_second_half(const CopyBlocks& copy, size_t index, uint64_t early) {
    const auto& block = copy.blocks[index];
    const auto& from = remote(block.from, block.state);
    const bool torn = from.content != early;
    store(block.to, torn ? 0xBAD : early);
    if (mapped_[copy.connection] != nonce_ || from.generation != block.generation) {
      return consumer_.on_copied(copy.pull, index, fail(Code::kFailedPrecondition, "stale"), now_);
    }
    if (torn) return consumer_.on_copied(copy.pull, index, fail(Code::kDataLoss, "torn"), now_);
    copy_first_half(copy, index + 1);
  }
  void on(Complete& complete) {
    const auto it = pulling_.find(complete.result.request_id);
    ASSERT_TRUE(it != pulling_.end()) << "completed twice";
    const auto& [pull, contents] = it->second;
    const auto valid = static_cast<size_t>((complete.result.valid_tokens + kBlockSize - 1) / kBlockSize);
    if (complete.result.outcome) {
      EXPECT_EQ(complete.result.valid_tokens, pull.token_count);
      ++succeeded_;
    }
    for (size_t i = 0; i < valid; ++i) EXPECT_EQ(local_[pull.blocks[i].value], contents[i]) << "accepted wrong bytes";
    if (complete.result.outcome) EXPECT_EQ(complete.result.state_valid, pull.state_slot.has_value());
    if (complete.result.state_valid) {
      ++states_;
      EXPECT_EQ(local_[*pull.state_slot], contents.back()) << "accepted a wrong state";
    }
    if (pull.state_slot) local_open_[*pull.state_slot] = false;
    for (const BlockId b : pull.blocks) local_open_[b.value] = false;
    pulling_.erase(it);
    ++completed_;
  }
  RemoteBlock& remote(int32_t index, bool state) { return remote_[state ? kBlocks + index : index]; }
  void store(int32_t block, uint64_t content) {
    EXPECT_TRUE(local_open_[block]) << "a late write";
    local_[block] = content;
  }

  // ---- the network
  template <typename Deliver>
  void travel(ConnectionId connection, Deliver deliver) {
    if (chance() < wild_.disconnect / 10) return break_connection(connection);
    if (chance() < wild_.restart / 10) return at(soon(), [this] { restart(); });
    if (chance() < wild_.drop) return;
    const auto arrive = [this, connection, deliver] {
      if (open_.contains(connection)) deliver();
    };
    at(soon(), arrive);
    if (chance() < wild_.duplicate) at(soon(), arrive);
  }
  void to_producer(ConnectionId connection, wire::Message message) {
    travel(connection, [=, this] { producer_->on_message(connection, message, now_); });
  }
  void to_consumer(ConnectionId connection, wire::Message message) {
    travel(connection, [=, this] { consumer_.on_message(connection, message, now_); });
  }
  void data_to_consumer(ConnectionId connection, wire::BlockData data, int64_t bytes, uint64_t content) {
    const bool corrupt = chance() < wild_.corrupt;
    // Data of one connection arrives in order unless the world is wild.
    const auto deliver = [=, this] {
      const auto target = consumer_.on_block_data(connection, data, bytes, now_);
      if (!target) return;
      store(target->block, corrupt ? 0xBAD : content);
      Result<void> outcome;
      if (corrupt) outcome = fail(Code::kDataLoss, "checksum");
      consumer_.on_stored(target->pull, data, bytes, outcome, now_);
    };
    if (wild_.drop == 0 && wild_.duplicate == 0) {
      data_at_ = std::max(data_at_ + std::chrono::microseconds(1), now_);
      return at(data_at_, [=, this] {
        if (open_.contains(connection)) deliver();
      });
    }
    travel(connection, deliver);
  }
  void break_connection(ConnectionId connection) {
    if (open_.erase(connection) == 0) return;
    at(soon(), [this, connection] { producer_->on_closed(connection); });
    at(soon(), [this, connection] { consumer_.on_disconnected(connection, {Code::kUnavailable, "reset"}, now_); });
  }
  // P dies with all its offers and comes back as another instance.
  void restart() {
    for (const auto& [request, blocks] : held_) ++releases_[request];
    const auto connections = open_;
    boot();
    for (const ConnectionId c : connections) break_connection(c);
  }

  std::mt19937_64 random_;
  Wild wild_;
  bool shm_;
  TimePoint now_{seconds(1000)};
  TimePoint data_at_{}, send_at_{};
  std::multimap<TimePoint, std::function<void()>> events_;
  std::optional<TimePoint> producer_timer_, consumer_timer_;
  std::unique_ptr<ProducerFsm> producer_;
  ConsumerFsm consumer_{{.identity = identity("d"),
                         .layout = kLayout,
                         .slice_bytes = 2 * kBlockBytes,
                         .pull_timeout = seconds(30),
                         .idle_timeout = seconds(5)}};
  uint64_t nonce_ = 0, content_ = 0, offer_id_ = 0;
  std::vector<RemoteBlock> remote_;
  std::set<int> free_, free_slots_;
  std::map<std::string, std::vector<int>> held_;
  std::map<std::string, int> releases_;
  size_t offered_ = 0;
  std::vector<uint64_t> local_;
  std::vector<bool> local_open_;
  int32_t next_local_ = 0;
  std::map<std::string, std::pair<Pull, std::vector<uint64_t>>> pulling_;
  std::set<ConnectionId> open_;
  std::map<ConnectionId, uint64_t> mapped_;
  int started_ = 0, completed_ = 0, succeeded_ = 0, states_ = 0;
};

int simulate(int runs, Wild wild) {
  int succeeded = 0, states = 0;
  for (int seed = 0; seed < runs && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    World world(static_cast<uint64_t>(seed), wild, seed % 2 == 0);
    world.run(6);
    succeeded += world.succeeded();
    states += world.states();
  }
  EXPECT_GT(states, 40);
  return succeeded;
}

TEST(HandoffSimulation, InACalmWorldEveryPullSucceeds) {
  const int succeeded = simulate(300, {});
  // One request in ten is declined; the four-second head start of some pulls lets a three-second lease end.
  EXPECT_GT(succeeded, 300 * 6 * 6 / 10);
}

TEST(HandoffSimulation, LossDuplicationAndReordering) {
  EXPECT_GT(simulate(700, {.drop = 0.05, .duplicate = 0.1, .cancel = 0.2}), 100);
}

TEST(HandoffSimulation, CorruptionBrokenConnectionsAndRestarts) {
  EXPECT_GT(simulate(700, {.corrupt = 0.1, .disconnect = 0.1, .restart = 0.05, .cancel = 0.1}), 100);
}

TEST(HandoffSimulation, EverythingAtOnce) {
  EXPECT_GT(
      simulate(700,
               {.drop = 0.1, .duplicate = 0.1, .corrupt = 0.05, .disconnect = 0.1, .restart = 0.03, .cancel = 0.3}),
      100);
}

}  // namespace
}  // namespace baton::transfer
