// Both state machines against each other in a seeded world that drops, duplicates, reorders, delays and corrupts
// messages, breaks connections, restarts P, reuses freed blocks at once and splits every copy in two. P may live in
// several processes, each of which holds some of the layers, hears of offers late and dies alone. Checked: every pull
// ends; every offer's blocks are released exactly once; nothing unverified or stale is ever accepted; no write reaches
// a block of D after its pull completed.
#include <algorithm>
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

// Process `index` of `count`: its share of the layers. A block has the same number in all.
std::shared_ptr<const Holdings> holdings_of_member(int index, int count) {
  auto rank = whole_cache(kLayout);
  rank.layout.block_count = kBlocks;
  rank.layout.slot_count = kSlots;
  const auto take = [&](kv::PagedGeometry& geometry, std::vector<kv::EntryPart>& parts) {
    const auto all = geometry.entries();
    const auto all_parts = std::exchange(parts, {});
    std::vector<kv::CacheEntry> mine;
    for (int e = geometry.entry_count() * index / count; e < geometry.entry_count() * (index + 1) / count; ++e) {
      mine.push_back(all[static_cast<size_t>(e)]);
      parts.push_back(all_parts[static_cast<size_t>(e)]);
    }
    geometry = kv::PagedGeometry(geometry.block_size(), mine);
  };
  take(rank.layout.blocks, rank.entry_parts);
  take(rank.layout.states, rank.state_parts);
  return std::make_shared<const Holdings>(*make_holdings({rank}, 1));
}

// A process of P.
struct Member {
  std::shared_ptr<const Holdings> holdings;
  std::unique_ptr<ProducerFsm> producer;
  std::vector<RemoteBlock> remote;
  std::set<std::string> held;
  std::optional<TimePoint> timer;
  uint64_t nonce = 0;
};

class World {
 public:
  World(uint64_t seed, Wild wild, bool shm, int members = 1)
      : random_(seed), wild_(wild), shm_(shm), members_(static_cast<size_t>(members)) {
    for (int s = 0; s < kSlots; ++s) free_slots_.insert(kBlocks + s);
    for (int b = 0; b < kBlocks; ++b) free_.insert(b);
    for (size_t m = 0; m < members_.size(); ++m) {
      members_[m].holdings = holdings_of_member(static_cast<int>(m), members);
      boot(m);
    }
  }

  void run(int requests) {
    for (int i = 0; i < requests; ++i) at(now_ + milliseconds(random_() % 3000), [this] { begin_request(); });
    // The guard is far beyond what the deadlines allow.
    for (int steps = 0; steps < 200000 && !events_.empty(); ++steps) step();
    ASSERT_TRUE(events_.empty()) << "the world never comes to rest";
    EXPECT_EQ(completed_, started_);
    EXPECT_TRUE(pulling_.empty());
    for (const auto& member : members_) EXPECT_EQ(member.producer->live_offers(), 0u);
    for (const auto& [request, count] : releases_) EXPECT_EQ(count, 1) << request.first;
    EXPECT_EQ(releases_.size(), offered_ * members_.size());
    EXPECT_TRUE(held_.empty());
  }
  int succeeded() const { return succeeded_; }
  int states() const { return states_; }

 private:
  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  void at(TimePoint when, std::function<void()> event) { events_.emplace(when, std::move(event)); }
  TimePoint soon() { return now_ + std::chrono::microseconds(10 + random_() % 20000); }

  void boot(size_t m) {
    Member& member = members_[m];
    member.nonce = ++nonces_;
    auto hello = hello_reply(shm_);
    hello.identity.layout = describe(*member.holdings, {.processes = static_cast<int32_t>(members_.size())});
    hello.identity.instance_nonce = member.nonce;
    hello.block_count = kBlocks;
    hello.slot_count = kSlots;
    hello.lease_ms = 3000;
    for (size_t other = 1; m == 0 && other < members_.size(); ++other) {
      hello.members.push_back({"p", static_cast<int32_t>(other + 1)});
    }
    member.producer = std::make_unique<ProducerFsm>(
        ProducerFsmOptions{.hello = hello, .holdings = member.holdings, .lease = seconds(3)});
    member.remote.assign(kBlocks + kSlots, {});
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
      for (size_t m = 0; m < members_.size(); ++m) {
        for (auto& action : members_[m].producer->take_actions()) {
          busy = true;
          std::visit([&](auto& a) { on(m, a); }, action);
        }
      }
      for (auto& action : consumer_.take_actions()) {
        busy = true;
        std::visit([&](auto& a) { on(a); }, action);
      }
    }
    for (auto& member : members_) {
      plan_timer(member.timer, member.producer->next_deadline(), [this, &member] { member.producer->tick(now_); });
    }
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
      ++content_;
      for (auto& member : members_) {
        auto& block = member.remote[static_cast<size_t>(b)];
        EXPECT_TRUE(block.generation == 0 || block.generation % 2 == 1);
        block.content = content_;
      }
      contents.push_back(content_);
      held_[request].push_back(b);
      local_.emplace_back(members_.size());
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
    for (size_t m = 0; m < members_.size(); ++m) {
      members_[m].held.insert(request);
      const auto hear = [this, m, id, offer, nonce = members_[m].nonce] {
        if (nonce == members_[m].nonce) members_[m].producer->offer(id, offer, now_);
      };
      if (m == 0) {
        hear();
      } else {
        at(soon(), hear);
      }
    }
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

  // ---- P's drivers, one per process
  void on(size_t m, SealBlocks& seal) {
    at(soon(), [this, m, seal, nonce = members_[m].nonce] {
      Member& member = members_[m];
      if (nonce != member.nonce) return;
      std::vector<uint64_t> generations;
      for (const auto& b : seal.blocks) {
        auto& block = remote(m, b.block, b.state);
        block.generation = (block.generation | 1) + 1;
        block.tokens = b.tokens;
        generations.push_back(block.generation);
      }
      member.producer->on_sealed(seal.offer_id, generations, now_);
    });
  }
  void on(size_t, SendToConnection& send) { to_consumer(send.connection, send.message); }
  void on(size_t m, SendBlocks& send) {
    // Bytes are read in two steps, the second as late as the send itself. Sends go out in order unless the world is
    // wild.
    const bool ordered = wild_.drop == 0 && wild_.duplicate == 0;
    send_at_ = std::max(send_at_ + std::chrono::microseconds(1), soon());
    at(ordered ? send_at_ : soon(), [this, m, send, nonce = members_[m].nonce] {
      if (nonce != members_[m].nonce) return;
      for (size_t i = 0; i < send.parts.size(); ++i) {
        const auto& wanted = send.ranks[send.parts[i].of];
        const auto& block = remote(m, send.parts[i].block, wanted.state);
        EXPECT_EQ(block.generation, send.parts[i].generation) << "a block was reopened under a send";
        for (size_t j = 0; j < wanted.spans.size(); ++j) {
          const auto tokens = static_cast<int>(send.parts[i].tokens);
          const wire::BlockData data{.call = send.call,
                                     .offer_id = send.offer_id,
                                     .part = static_cast<uint32_t>(i),
                                     .tokens = static_cast<uint32_t>(tokens),
                                     .generation = block.generation,
                                     .span = wanted.spans[j],
                                     .last = i + 1 == send.parts.size() && j + 1 == wanted.spans.size(),
                                     .checksums = std::vector<uint64_t>(span_units(wanted.spans[j]), block.content)};
          const auto& geometry = members_[m].holdings->geometry(0, wanted.state);
          data_to_consumer(send.connection, data, span_bytes(geometry, wanted.spans[j], tokens), block.content);
        }
      }
      members_[m].producer->on_blocks_sent(send.connection, send.offer_id);
    });
  }
  void on(size_t m, ReopenBlocks& reopen) {
    for (int32_t b : reopen.blocks) remote(m, b, false).generation |= 1;
    for (int32_t s : reopen.slots) remote(m, s, true).generation |= 1;
  }
  void on(size_t m, Release& release) {
    // An offer that reached a process after its restart was given back for that process then.
    if (members_[m].held.erase(release.request_id) != 0) released(m, release.request_id);
  }
  void released(size_t m, const std::string& request) {
    ++releases_[{request, m}];
    if (std::ranges::any_of(members_, [&](const Member& member) { return member.held.contains(request); })) return;
    for (int b : held_[request]) {
      EXPECT_TRUE((b < kBlocks ? free_ : free_slots_).insert(b).second);
      if (chance() >= 0.5) continue;
      ++content_;
      for (auto& member : members_) member.remote[static_cast<size_t>(b)].content = content_;  // reused at once
    }
    held_.erase(request);
  }
  void on(size_t, CloseConnection& close) { break_connection(close.connection); }

  // ---- D's driver
  void on(Connect& connect) {
    at(soon(), [this, id = connect.connection, port = connect.port] {
      if (chance() < wild_.disconnect) return consumer_.on_disconnected(id, {Code::kUnavailable, "refused"}, now_);
      open_[id] = static_cast<size_t>(port - 1);
      consumer_.on_connected(id, now_);
    });
  }
  void on(Disconnect& disconnect) {
    const auto it = open_.find(disconnect.connection);
    if (it == open_.end()) return;
    at(soon(), [this, id = it->first, m = it->second] { members_[m].producer->on_closed(id, now_); });
    open_.erase(it);
  }
  void on(SendToPeer& send) { to_producer(send.connection, send.message); }
  void on(MapArena& map) {
    const auto it = open_.find(map.connection);
    if (it == open_.end()) return consumer_.on_mapped(map.connection, fail(Code::kUnavailable, "gone"), now_);
    mapped_[map.connection] = {it->second, members_[it->second].nonce};
    consumer_.on_mapped(map.connection, {}, now_);
  }
  void on(CopyParts& copy) {
    at(soon(), [this, copy] { copy_first_half(copy, 0); });
  }
  bool stale(const CopyParts& copy, const PartCopy& part) {
    const auto [m, nonce] = mapped_.at(copy.connection);
    return members_[m].nonce != nonce || remote(m, part.from, part.state).generation != part.generation;
  }
  // One block: read what is there, let the world go on, then look at the generation again.
  void copy_first_half(CopyParts copy, size_t index) {
    if (index == copy.parts.size()) return consumer_.on_copied(copy.leg, index, {}, now_);
    const auto& part = copy.parts[index];
    if (stale(copy, part)) {
      return consumer_.on_copied(copy.leg, index, fail(Code::kFailedPrecondition, "stale"), now_);
    }
    const uint64_t early = remote(mapped_.at(copy.connection).first, part.from, part.state).content;
    at(soon(), [this, copy, index, early] { copy_second_half(copy, index, early); });
  }
  void copy_second_half(const CopyParts& copy, size_t index, uint64_t early) {
    const auto& part = copy.parts[index];
    const size_t m = mapped_.at(copy.connection).first;
    const bool torn = remote(m, part.from, part.state).content != early;
    store(m, part, torn ? 0xBAD : early);
    if (stale(copy, part)) {
      return consumer_.on_copied(copy.leg, index, fail(Code::kFailedPrecondition, "stale"), now_);
    }
    if (torn) return consumer_.on_copied(copy.leg, index, fail(Code::kDataLoss, "torn"), now_);
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
    const auto is = [&](int32_t block, uint64_t content) {
      return std::ranges::all_of(local_[static_cast<size_t>(block)], [&](uint64_t c) { return c == content; });
    };
    for (size_t i = 0; i < valid; ++i) EXPECT_TRUE(is(pull.blocks[i].value, contents[i])) << "accepted wrong bytes";
    if (complete.result.outcome) EXPECT_EQ(complete.result.state_valid, pull.state_slot.has_value());
    if (complete.result.state_valid) {
      ++states_;
      EXPECT_TRUE(is(*pull.state_slot, contents.back())) << "accepted a wrong state";
    }
    if (pull.state_slot) local_open_[*pull.state_slot] = false;
    for (const BlockId b : pull.blocks) local_open_[b.value] = false;
    pulling_.erase(it);
    ++completed_;
  }
  RemoteBlock& remote(size_t m, int32_t index, bool state) {
    return members_[m].remote[static_cast<size_t>(state ? kBlocks + index : index)];
  }
  void store(size_t m, const PartCopy& part, uint64_t content) {
    const auto block = static_cast<size_t>(part.pieces.at(0).to);
    EXPECT_TRUE(local_open_[block]) << "a late write";
    local_[block][m] = content;
  }

  // ---- the network
  template <typename Deliver>
  void travel(ConnectionId connection, Deliver deliver) {
    if (chance() < wild_.disconnect / 10) return break_connection(connection);
    if (chance() < wild_.restart / 10) return at(soon(), [this] { restart(random_() % members_.size()); });
    if (chance() < wild_.drop) return;
    const auto arrive = [this, connection, deliver] {
      if (open_.contains(connection)) deliver();
    };
    at(soon(), arrive);
    if (chance() < wild_.duplicate) at(soon(), arrive);
  }
  void to_producer(ConnectionId connection, wire::Message message) {
    travel(connection, [=, this] { members_[open_.at(connection)].producer->on_message(connection, message, now_); });
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
      store(open_.at(connection), target->part, corrupt ? 0xBAD : content);
      Result<void> outcome;
      if (corrupt) outcome = fail(Code::kDataLoss, "checksum");
      consumer_.on_stored(target->leg, data, bytes, outcome, now_);
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
    const auto it = open_.find(connection);
    if (it == open_.end()) return;
    at(soon(), [this, connection, m = it->second] { members_[m].producer->on_closed(connection, now_); });
    open_.erase(it);
    at(soon(), [this, connection] { consumer_.on_disconnected(connection, {Code::kUnavailable, "reset"}, now_); });
  }
  // A process of P dies with its offers and comes back as another instance.
  void restart(size_t m) {
    const auto connections = open_;
    boot(m);
    for (const auto& request : std::exchange(members_[m].held, {})) released(m, request);
    for (const auto& [c, of] : connections) {
      if (of == m) break_connection(c);
    }
  }

  std::mt19937_64 random_;
  Wild wild_;
  bool shm_;
  TimePoint now_{seconds(1000)};
  TimePoint data_at_{}, send_at_{};
  std::multimap<TimePoint, std::function<void()>> events_;
  std::optional<TimePoint> consumer_timer_;
  std::vector<Member> members_;
  ConsumerFsm consumer_{{.identity = identity("d"),
                         .holdings = kHoldings,
                         .slice_bytes = 2 * kBlockBytes,
                         .pull_timeout = seconds(30),
                         .idle_timeout = seconds(5)}};
  uint64_t nonces_ = 0, content_ = 0, offer_id_ = 0;
  std::set<int> free_, free_slots_;
  std::map<std::string, std::vector<int>> held_;
  std::map<std::pair<std::string, size_t>, int> releases_;  // by request and process
  size_t offered_ = 0;
  std::vector<std::vector<uint64_t>> local_;  // by block of D, then by process of P
  std::vector<bool> local_open_;
  int32_t next_local_ = 0;
  std::map<std::string, std::pair<Pull, std::vector<uint64_t>>> pulling_;
  std::map<ConnectionId, size_t> open_;                         // to which process
  std::map<ConnectionId, std::pair<size_t, uint64_t>> mapped_;  // process and instance
  int started_ = 0, completed_ = 0, succeeded_ = 0, states_ = 0;
};

int simulate(int runs, Wild wild, int members = 1) {
  int succeeded = 0, states = 0;
  for (int seed = 0; seed < runs && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    World world(static_cast<uint64_t>(seed), wild, seed % 2 == 0, members);
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

TEST(HandoffSimulation, InACalmWorldEveryPullFromTwoProcessesSucceeds) {
  EXPECT_GT(simulate(300, {}, 2), 300 * 6 * 6 / 10);
}

TEST(HandoffSimulation, OneOfTwoProcessesDies) {
  EXPECT_GT(simulate(500, {.disconnect = 0.05, .restart = 0.2, .cancel = 0.1}, 2), 100);
}

TEST(HandoffSimulation, EverythingAtOnceWithTwoProcesses) {
  EXPECT_GT(
      simulate(500, {.drop = 0.1, .duplicate = 0.1, .corrupt = 0.05, .disconnect = 0.1, .restart = 0.03, .cancel = 0.3},
               2),
      50);
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
