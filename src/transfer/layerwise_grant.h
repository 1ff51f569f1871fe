// What D has granted to one push: its blocks, for the KV of one prompt, and who fills them. Pure: no sockets, no clock,
// no memory.
//
// P may be several processes; each writes what its ranks hold over a connection of its own. One engine writes at a
// time: where the proxy asks another one, since the first has failed, that begins anew, and what the first still sends
// is not taken.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "transfer/connector.h"
#include "transfer/push_leg.h"
#include "wire/handoff_messages.h"

namespace baton::transfer {

// A process of P, as its greeting says.
struct PushWriter {
  uint64_t process = 0;   // its nonce
  int process_count = 1;  // of its engine
};

class Grant {
 public:
  // pull.blocks cover pull.token_count tokens; the first pull.skip_tokens are here.
  explicit Grant(Pull pull) : pull_(std::make_unique<const Pull>(std::move(pull))) {}

  const Pull& pull() const { return *pull_; }
  bool wants_nothing() const { return pull_->skip_tokens >= pull_->token_count && !pull_->state_slot; }
  // A process of P is to write over this connection. kMismatch when it has computed another prompt, or its engine has
  // not all that is wanted; kNotFound when another engine has taken over.
  Result<wire::PushOpenReply> open(uint64_t connection, const wire::PushOpen& open, const PushWriter& writer,
                                   std::shared_ptr<const ReshardPlan> plan);
  // Null: the connection does not, or no longer, write here.
  PushLeg* leg(uint64_t connection);
  void add_bytes(int64_t bytes) { bytes_ += bytes; }
  // The process has nothing more to give.
  void end(uint64_t connection);
  // It can't go on. False: it was none of those that write, or had ended.
  bool lose(uint64_t connection, const Status& why);

  // One of the processes that write is lost, and its engine with it: why.
  const std::optional<Status>& lost() const { return lost_; }
  // All processes of P have ended.
  bool finished() const;
  // Of what is finished: kDataLoss when something is missing.
  Result<void> outcome() const;
  // "1 of 2 processes of the prefill engine": for messages.
  std::string writers() const;
  // Tokens from the start that are here.
  int64_t valid_tokens() const;
  bool state_valid() const;
  int64_t bytes() const { return bytes_; }

 private:
  struct Leg {
    PushLeg leg;
    uint64_t process = 0;
    bool ended = false;
  };
  Result<void> check(const wire::PushOpen& open) const;
  Result<void> take_over(uint64_t push_id, int process_count);
  bool all_known() const { return process_count_ > 0 && std::ssize(legs_) == process_count_; }

  std::unique_ptr<const Pull> pull_;  // where the legs find it, wherever the grant is moved to
  uint64_t push_id_ = 0;              // of the engine that writes; 0: none yet
  int process_count_ = 0;             // of it
  std::map<uint64_t, Leg> legs_;      // by connection
  std::optional<Status> lost_;
  std::set<uint64_t> superseded_;  // pushes of engines before
  int64_t bytes_ = 0;
};

}  // namespace baton::transfer
