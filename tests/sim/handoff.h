// The two ends of a pull hand-off over a simulated network: transfer's own state machines, seals, plans and checks,
// with real bytes. What pull_producer.cc and pull_consumer.cc do with sockets and a thread is done here with events.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "engine/kv_host.h"
#include "sim/world.h"
#include "tensor/buffer.h"
#include "transfer/consumer_fsm.h"
#include "transfer/producer_fsm.h"
#include "transfer/rank_seals.h"
#include "transfer/seal_job.h"
#include "transfer/sealed_copy.h"

namespace baton::sim {

// The KV memory of a process. It outlives the process where a peer has mapped it.
struct Arena {
  std::shared_ptr<const transfer::Holdings> holdings;
  tensor::Buffer data, tables;
  std::span<std::byte> bytes() { return {data.data(), data.size()}; }
};
Result<std::shared_ptr<Arena>> make_arena(const std::vector<kv::RankCache>& ranks, int context_size);

class SimProducer;
class SimConsumer;

// A connection. Either end becomes null when it has gone.
struct Link {
  SimProducer* producer = nullptr;
  SimConsumer* consumer = nullptr;
  transfer::ConnectionId at_producer = 0, at_consumer = 0;
  std::string producer_node, consumer_node;
  bool open = true;
  TimePoint to_producer, to_consumer;  // the last arrival: a connection keeps the order
  // What P has to write, in order.
  struct Job {
    std::variant<wire::Message, transfer::SendBlocks> work;
    size_t part = 0;
  };
  std::deque<Job> jobs;
  bool writing = false;
};
using LinkPtr = std::shared_ptr<Link>;

class HandoffNet {
 public:
  explicit HandoffNet(World& world) : world_(world) {}
  void listen(const std::string& host, SimProducer* producer) { listeners_[host] = producer; }
  void stop_listening(const std::string& host) { listeners_.erase(host); }
  SimProducer* find(const std::string& host) const;
  // The frame as bytes, there and back through wire's codec.
  void send(const LinkPtr& link, bool to_producer, const wire::Message& message, std::vector<std::byte> payload = {});
  // Both ends that are still there hear of it.
  void cut(const LinkPtr& link, bool tell_producer, bool tell_consumer);
  transfer::ConnectionId next_connection() { return ++connections_; }

 private:
  void deliver(const LinkPtr& link, bool to_producer, const std::vector<std::byte>& frame,
               const std::vector<std::byte>& payload);
  World& world_;
  std::map<std::string, SimProducer*> listeners_;
  transfer::ConnectionId connections_ = 0;
};

struct HandoffIdentity {
  std::string engine_id;
  std::string model_fingerprint;
  uint64_t nonce = 0;
};

class SimProducer final : public transfer::KvProducer {
 public:
  SimProducer(HandoffNet& net, Process& process, std::shared_ptr<Arena> arena, const HandoffIdentity& identity,
              transfer::RankSeals seals, transfer::WakeEngine wake);
  ~SimProducer() override;

  wire::KvTransferParams offer(transfer::Offer offer) override;
  std::vector<std::string> poll_released() override { return std::exchange(released_, {}); }
  void revoke(const std::string& request_id) override;

  // From the network.
  void accept(const LinkPtr& link);
  void receive(const LinkPtr& link, const wire::Message& message);
  void closed(const LinkPtr& link);
  void clock_jumped();

  Process& process() { return process_; }
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  const transfer::ProducerFsm& fsm() const { return fsm_; }
  int ended(transfer::EndReason reason) const { return ended_[static_cast<size_t>(reason)]; }

 private:
  void drain_inbox();
  void act();
  void on(transfer::SealBlocks& seal);
  void on(transfer::SendToConnection& send);
  void on(transfer::SendBlocks& send);
  void on(transfer::ReopenBlocks& reopen);
  void on(transfer::Release& release);
  void on(transfer::CloseConnection& close);
  void seal_next();
  void write_next(const LinkPtr& link);
  void write_part(const LinkPtr& link, const transfer::SendBlocks& send, size_t index);
  void finish_jobs(const LinkPtr& link);
  void plan_timer();

  HandoffNet& net_;
  Process& process_;
  World& world_;
  const std::shared_ptr<Arena> arena_;
  transfer::RankSeals seals_;
  const std::string engine_id_;
  transfer::WakeEngine wake_;
  transfer::ProducerFsm fsm_;
  std::map<transfer::ConnectionId, LinkPtr> links_;
  std::vector<std::pair<uint64_t, transfer::Offer>> offers_;
  std::vector<std::string> revokes_, released_;
  std::deque<std::unique_ptr<transfer::SealJob>> sealing_;
  std::optional<TimePoint> armed_;
  std::array<int, 4> ended_{};
  int unsent_ = 0;  // reads of links that have gone, not yet reported as sent
  bool acting_ = false;
};

class SimConsumer final : public transfer::KvConsumer {
 public:
  SimConsumer(HandoffNet& net, Process& process, std::shared_ptr<Arena> arena, const HandoffIdentity& identity,
              transfer::WakeEngine wake);
  ~SimConsumer() override;

  void start(transfer::Pull pull) override;
  void cancel(const std::string& request_id) override;
  void decline(const wire::KvTransferParams& params) override;
  void hold(const wire::KvTransferParams& params) override;
  std::vector<transfer::PullResult> poll_completed() override { return std::exchange(completed_, {}); }

  void receive(const LinkPtr& link, const wire::Message& message, std::span<const std::byte> payload);
  void disconnected(const LinkPtr& link);
  void clock_jumped();

  Process& process() { return process_; }
  const transfer::ConsumerFsm& fsm() const { return fsm_; }
  int checksum_failures() const { return checksum_failures_; }
  int stale() const { return stale_; }
  int pulled() const { return pulled_; }

 private:
  struct Mapped {
    std::shared_ptr<Arena> arena;
    transfer::RankReaders seals;
  };
  struct Copying {
    transfer::CopyParts work;
    std::shared_ptr<Mapped> from;
    size_t good = 0;
    bool first_half = true;
    transfer::SealedCopy copy;
    transfer::PartMoves second_half;
    Result<void> moved;
  };
  void order(std::function<void(TimePoint)> wish);
  void act();
  void on(transfer::Connect& connect);
  void on(transfer::Disconnect& disconnect);
  void on(transfer::SendToPeer& send);
  void on(transfer::MapArena& map);
  void on(transfer::CopyParts& copy);
  void on(transfer::Complete& complete);
  void copy_next(const std::shared_ptr<Copying>& copying);
  Result<void> copy_first_half(Copying& copying);
  Result<void> copy_second_half(Copying& copying);
  Result<void> move(const transfer::PartMoves& moves, std::span<const std::byte> source, bool memory);
  void check_open(const transfer::PartCopy& part);
  void on_data(const LinkPtr& link, const wire::BlockData& data, std::span<const std::byte> payload);
  void plan_timer();

  HandoffNet& net_;
  Process& process_;
  World& world_;
  const std::shared_ptr<Arena> arena_;
  transfer::WakeEngine wake_;
  transport::ShmMover mover_;
  transfer::ConsumerFsm fsm_;
  std::map<transfer::ConnectionId, LinkPtr> links_;
  std::map<transfer::ConnectionId, std::shared_ptr<Mapped>> mapped_;
  std::map<std::string, transfer::Pull> pulls_;  // under way
  std::multiset<int32_t> open_blocks_, open_slots_;
  std::vector<transfer::PullResult> completed_;
  std::optional<TimePoint> armed_;
  int checksum_failures_ = 0, stale_ = 0, pulled_ = 0;
  int copies_ = 0;  // under way
  bool acting_ = false;
};

// A host of either kind. A block that gets a new owner is overwritten, so that whoever still reads it shows.
class SimHost final : public engine::KvHost {
 public:
  static Result<std::unique_ptr<SimHost>> make(HandoffNet& net, Process& process, bool prefill,
                                               HandoffIdentity identity, const engine::KvHostRequest& request);
  std::byte* memory(int rank) override { return arena_->data.data() + arena_->holdings->arenas.data_offset(rank); }
  transfer::KvProducer* producer() override { return producer_.get(); }
  transfer::KvConsumer* consumer() override { return consumer_.get(); }
  SimProducer* sim_producer() { return producer_.get(); }
  SimConsumer* sim_consumer() { return consumer_.get(); }
  void on_block_reuse(BlockId block) override { scribble(block.value, false); }
  void on_slot_reuse(int32_t slot) override { scribble(slot, true); }

 private:
  void scribble(int32_t index, bool state);
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<SimProducer> producer_;
  std::unique_ptr<SimConsumer> consumer_;
};

}  // namespace baton::sim
