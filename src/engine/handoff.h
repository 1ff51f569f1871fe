// The engine's side of both ends of a hand-off: which blocks are held for whom, between the scheduler (which decides)
// and the connectors (which move). Engine thread.
//
// Connectors know a request by a transfer id, the client's id with the request's number: a client may use an id again
// while the blocks of its first use are still held.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_host.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_plan.h"
#include "engine/seed_source.h"
#include "kv/block_manager.h"
#include "kv/state_pool.h"

namespace baton::engine {

class Handoff {
 public:
  Handoff(transfer::KvProducer* producer, transfer::KvConsumer* consumer, kv::BlockManager& blocks,
          kv::StatePool& states);

  bool can_offer() const { return producer_ != nullptr; }
  bool can_pull() const { return consumer_ != nullptr; }
  bool can_push() const { return producer_ != nullptr && producer_->pushes(); }

  // What a step, by its number, computes of a prompt that is pushed: after it the first `computed` tokens are there.
  // The blocks are held until they have been sent. False: nothing that is not pushed already.
  bool push(uint64_t step, const std::string& client_id, const wire::KvTransferParams& params, Sequence& sequence,
            int64_t computed);
  // A pushed prompt will not be finished.
  void abandon_push(const std::string& client_id, SequenceId sequence);

  wire::KvTransferParams offer(const std::string& client_id, SequenceId sequence, KvSave save);
  void start(const std::string& client_id, const wire::KvTransferParams& params, KvLoad load);
  // The sequence is gone; its blocks and state are freed when the connector lets go of them.
  void cancel(SequenceId sequence, std::vector<BlockId> held, std::optional<kv::StateSlot> held_state);
  void decline(const wire::KvTransferParams& params);
  // Gives up what is offered under a client's id.
  void revoke(const std::string& client_id);
  void revoke_all();

  struct Loaded {
    SequenceId sequence;
    transfer::PullResult result;
  };
  // Frees what the connectors have let go of; returns the loads that live sequences wait for.
  std::vector<Loaded> poll();

  int64_t offers_held() const { return static_cast<int64_t>(offers_.size()); }
  // Something is with a connector, and will come back by poll().
  bool pending() const { return !offers_.empty() || !loads_.empty() || !pinned_.empty(); }

 private:
  struct Offered {
    std::string client_id;
    std::vector<BlockId> blocks;
    std::optional<kv::StateSlot> state;
  };
  struct Loading {
    SequenceId sequence;
    bool cancelled = false;
    std::vector<BlockId> held;  // once cancelled: freed here
    std::optional<kv::StateSlot> held_state;
  };
  void free_released();

  transfer::KvProducer* const producer_;
  transfer::KvConsumer* const consumer_;
  kv::BlockManager& blocks_;
  kv::StatePool& states_;
  std::unordered_map<std::string, std::vector<BlockId>> pinned_;  // by ticket: parts of prompts that are being pushed
  uint64_t next_ticket_ = 1;
  SeedSource push_ids_{0};
  std::unordered_map<std::string, Offered> offers_;           // by transfer id
  std::unordered_map<std::string, Loading> loads_;            // by transfer id
  std::unordered_map<SequenceId, std::string> transfer_of_;   // of loads
  std::multimap<std::string, std::string> offers_of_client_;  // client id to transfer id
};

}  // namespace baton::engine
