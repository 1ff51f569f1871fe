// The two ends of a pull hand-off, as the engine's scheduler sees them. All calls are on the engine thread and never
// block; the work happens on the connector's own thread, whose results are polled once per step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "wire/handoff_messages.h"
#include "wire/kv_transfer_params.h"
#include "wire/prompt_digest.h"

namespace baton::transfer {

// What P keeps for D: the prompt's KV in `blocks`, whose first `token_count` tokens are valid.
struct Offer {
  std::string request_id;
  std::vector<BlockId> blocks;
  int64_t token_count = 0;
  int32_t last_token_id = 0;    // the token P sampled after the prompt
  wire::PromptDigest prompt{};  // of the token_count tokens
  // A slot with the recurrent state of all tokens but the last. It is held as the blocks are.
  std::optional<int32_t> state_slot;
  // 0: a new offer, of the process that answers the client. Else, on the engine's other processes: the baton_offer_id
  // that the first one gave it.
  uint64_t offer_id = 0;
};

// What a step is about to compute of a prompt that is pushed while it is computed.
struct PushStep {
  uint64_t step = 0;  // its number
  std::string request_id;
  uint64_t push_id = 0;  // drawn once for the request, never 0: the same in all processes of the engine
  // Of D: where it listens, and its grant.
  std::string host;
  int port = 0;
  uint64_t grant_id = 0;
  int64_t token_count = 0;      // of the whole prompt
  wire::PromptDigest prompt{};  // of these tokens
  bool has_state = false;       // there will be recurrent state to push, with the offer
  // After the step the first end_token tokens are there; from begin_token on they were not when the step before was
  // planned. What is complete in these blocks, of all from the one that holds begin_token, stands still until
  // poll_released names the ticket.
  int64_t begin_token = 0, end_token = 0;
  std::vector<BlockId> blocks;
  std::string ticket;
};

class KvProducer {
 public:
  virtual ~KvProducer() = default;
  // Whether KV is pushed while it is computed: then plan_push() and entries_ready() are called, and an offer says that
  // all blocks have been.
  virtual bool pushes() const { return false; }
  // Before a step, for each sequence of it that is pushed.
  virtual void plan_push(PushStep) {}
  // In a step that has such sequences, from the thread of each rank of this process: the first `count` of the rank's
  // cache entries of the step's rows are in memory. After the step it is called once more, with all.
  virtual void entries_ready(int /*rank*/, uint64_t /*step*/, int /*count*/) {}
  // Seals the blocks and holds them under a lease. The engine must keep them untouched until poll_released names the
  // request.
  virtual wire::KvTransferParams offer(Offer offer) = 0;
  // Where this process is reached.
  virtual wire::HandoffAddress address() const { return {}; }
  // Of an engine of several processes, on the first: where the others are reached. Until then nothing is handed over.
  virtual void set_members(std::vector<wire::HandoffAddress>) {}
  // Requests whose blocks may be freed: done, aborted by D, or lease expired. Of an engine of several processes each
  // says so for itself: a block may be used again once all have.
  virtual std::vector<std::string> poll_released() = 0;
  // The engine itself gives the request up (client abort, shutdown). It still comes back through poll_released.
  virtual void revoke(const std::string& request_id) = 0;
};

// What D wants: token_count tokens of a prompt, of which the first `skip_tokens` (a multiple of the block size) are
// already here. `blocks` are D's own, covering all token_count tokens.
struct Pull {
  std::string request_id;
  wire::KvTransferParams params;
  std::vector<BlockId> blocks;
  int64_t token_count = 0;
  int64_t skip_tokens = 0;
  // Of all the prompt's tokens: an offer of any other prompt is refused with kMismatch.
  wire::PromptDigest prompt{};
  // Our slot for the recurrent state of all tokens but the last: then the offer must be of exactly token_count tokens.
  std::optional<int32_t> state_slot;
};

struct PullResult {
  std::string request_id;
  // Tokens from the start that are here and verified: token_count on success; on failure, the longest good prefix.
  int64_t valid_tokens = 0;
  bool state_valid = false;  // the state was asked for, is here and verified
  int64_t bytes = 0;
  double seconds = 0;    // from start() until verified
  Result<void> outcome;  // why it stopped short, if it did
  // The token that P sampled after the prompt, where it is known only now.
  std::optional<int32_t> last_token;
};

class KvConsumer {
 public:
  virtual ~KvConsumer() = default;
  // The blocks must stay allocated until poll_completed names the request, also after cancel().
  virtual void start(Pull pull) = 0;
  virtual void cancel(const std::string& request_id) = 0;
  // Keeps P's lease alive while the request waits for blocks here. Ends with start() or decline() of the same offer.
  virtual void hold(const wire::KvTransferParams&) {}
  // D will not pull after all (rejected, aborted before admission, full local hit): tells P to free.
  virtual void decline(const wire::KvTransferParams& params) = 0;
  virtual std::vector<PullResult> poll_completed() = 0;
};

// Called by either end, from its own thread, when a poll has something to return: wakes the engine thread.
using WakeEngine = std::function<void()>;

}  // namespace baton::transfer
