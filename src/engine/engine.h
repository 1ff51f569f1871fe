// The engine's whole boundary: token ids in, token ids out. Text, HTTP and processes are others' business.
//
// Any thread may call an Engine. Callbacks run on the engine thread and must not block: they hand over and return.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/strong_id.h"
#include "wire/kv_transfer_params.h"
#include "wire/layout_desc.h"

namespace baton::engine {

// vLLM's sampling parameters, in token ids. Defaults are vLLM's.
struct SamplingParams {
  float temperature = 1;  // 0: greedy
  float top_p = 1;
  int top_k = 0;  // 0 or -1: all
  float min_p = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::vector<TokenId>> bad_words;
  std::vector<TokenId> allowed_token_ids;  // empty: all
  std::vector<TokenId> stop_token_ids;     // besides the model's own end tokens
  bool ignore_eos = false;
  int min_tokens = 0;
  int max_tokens = 16;                 // of new tokens: those of EngineRequest::output_ids don't count
  std::optional<uint64_t> seed;        // absent: the engine draws one, and says so in RequestOutput::seed
  std::optional<int> logprobs;         // top-n per generated token; 0: the token's own; -1: whole vocabulary
  std::optional<int> prompt_logprobs;  // the same per prompt token
};

struct EngineRequest {
  std::string id;  // unique among live requests
  std::vector<TokenId> prompt_ids;
  // Tokens generated elsewhere before: a resumed request. They count for penalties, min_tokens and positions of noise.
  std::vector<TokenId> output_ids;
  SamplingParams sampling;
  int prompt_index = 0;  // of several prompts in one call: part of the noise key
  int choice_index = 0;  // of n: part of the noise key
  int priority = 0;      // lower first, with the priority policy
  std::string client;    // who asks: clients take turns in the queue, and none may fill it. Empty: one like any other
  std::string cache_salt;
  std::optional<int> data_parallel_rank;  // of several replicas, the one that must take it
  std::optional<wire::KvTransferParams> kv_transfer;
  // Whoever asks can bring it back with output_ids: with EngineConfig::recompute_scheduler it may end with kRecomputed.
  bool may_leave = false;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  int rank = 0;  // 1: the likeliest
};

struct GeneratedToken {
  TokenId token = 0;
  std::optional<TokenLogprob> logprob;     // when logprobs were asked for
  std::vector<TokenLogprob> top_logprobs;  // best first
  uint64_t logits_hash = 0;                // XXH3 of the fp32 logits; only with EngineConfig::hash_logits
};

// kRecomputed: no block was free for it here; it is to be prefilled elsewhere and resumed.
enum class FinishReason : uint8_t { kStop, kLength, kAbort, kError, kRecomputed };

// Everything new about a request since the last one. The last has `finish`.
struct RequestOutput {
  std::string id;
  std::vector<GeneratedToken> tokens;
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_token;  // the stop_token_ids member that ended it; absent for the model's own end token
  std::optional<Status> error;        // with kError
  // With the first output:
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;  // per prompt token from the second; own token first
  std::vector<uint64_t> prompt_logits_hashes;              // only with hash_logits and prompt_logprobs
  int64_t cached_tokens = 0;                               // prompt tokens found in the prefix cache here
  int64_t external_tokens = 0;                             // prompt tokens that came by hand-off
  int64_t transferred_bytes = 0;
  double transfer_seconds = 0;
  uint64_t seed = 0;
  // With the last output, on P: what D needs.
  std::optional<wire::KvTransferParams> kv_transfer;
};
using OutputCallback = std::function<void(RequestOutput&&)>;

enum class KvRole : uint8_t { kNone, kProducer, kConsumer, kBoth };

// kv_load_failure_policy, for each of the groups that a hand-off brings: what a request whose KV did not arrive does.
struct LoadFailurePolicy {
  bool recompute_blocks = true;  // false: it fails
  bool recompute_state = true;   // the recurrent state; without it the whole prompt is computed again
};

struct KvTransferConfig {
  KvRole role = KvRole::kNone;
  std::string connector;           // as given: MooncakeConnectorV1, MooncakeConnectorV2, NixlConnector
  std::string engine_id;           // unique among engines
  std::string host = "127.0.0.1";  // advertised to D, and bound on P
  int port = 0;                    // 0: any free port
  double lease_s = 30;
  LoadFailurePolicy on_load_failure;
  std::string transport = "auto";  // auto | shm | tcp
  std::string secret;              // shared secret of the control channel; empty: none
  std::string tls_cert, tls_key, tls_ca;
  std::vector<std::string> peers;  // baton_peers: addresses, networks, names that requests may have us connect to
  bool allow_other_profile = false, allow_other_version = false;  // of the other side
  // kv_connector_extra_config.prefill and .decode: what is said of both sides' grids. Checked, not needed.
  wire::GridClaim prefill_claim, decode_claim;
};

struct EngineConfig {
  int max_model_len = 0;  // 0: the model's
  int max_num_batched_tokens = 2048;
  int max_num_seqs = 128;
  int block_size = 16;
  int64_t kv_cache_bytes = 0;       // of blocks; 0: from memory_utilization
  int64_t state_cache_bytes = 0;    // of recurrent state, running and kept; 0: chosen from what is there
  int state_snapshot_interval = 0;  // tokens between kept states, besides those at prefixes' ends; 0: none
  double memory_utilization = 0.9;  // share of usable memory for weights and KV
  bool prefix_caching = true;
  std::string kv_cache_dtype = "auto";       // auto, bfloat16, float16, float32; latents also fp8, int8
  std::string indexer_cache_dtype = "auto";  // the same, of index keys; auto: kv_cache_dtype
  bool priority_scheduling = false;
  bool recompute_scheduler = false;  // a decode engine without a free block ends a request in place of preempting it
  int long_prefill_token_threshold = 0;  // 0: none; else the largest prompt chunk of a step
  int max_logprobs = 20;                 // the most logprobs or prompt_logprobs a request may ask for; -1: no bound
  int max_waiting_requests = 4096;       // admission bound: beyond it submit fails with kResourceExhausted
  double max_queue_s = 0;                // one that has not started by then ends with kUnavailable; 0: no bound
  std::string hash_seed;                 // PYTHONHASHSEED: root of the prefix hash chain
  uint64_t seed = 0;
  std::vector<TokenId> eos_token_ids;
  KvTransferConfig kv_transfer;
  bool hash_logits = false;             // for tests of the exactness contract
  double test_preempt_probability = 0;  // for tests: preempts a running request at random before a step
};

struct EngineStats {
  int64_t running = 0, waiting = 0;  // waiting counts those whose KV is being fetched
  int64_t loading = 0;               // those whose KV is being fetched
  int64_t kv_blocks_total = 0, kv_blocks_used = 0;
  int64_t state_slots_total = 0, state_slots_held = 0, state_snapshots = 0;  // recurrent state
  int64_t prefix_queries = 0, prefix_hits = 0;                               // tokens
  int64_t preemptions = 0;
  int64_t recomputed = 0;             // ended with kRecomputed
  int64_t last_token_mismatches = 0;  // D's first token against P's last_token_id
  int64_t transfer_failures = 0;
  int64_t group_busy = 0;   // replicas here whose expert-parallel group has work, be it elsewhere
  int64_t offers_held = 0;  // requests whose KV P keeps for a D
};

class Engine {
 public:
  virtual ~Engine() = default;
  // kInvalidArgument for what the request gets wrong (too long, ids out of range), kResourceExhausted when full.
  // On success exactly one output with `finish` follows, unless the engine is destroyed first.
  virtual Result<void> submit(EngineRequest request, OutputCallback on_output) = 0;
  // Ends it with kAbort; its blocks are free before the next step. Unknown ids are ignored.
  virtual void abort(const std::string& id) = 0;
  // The same, but the caller has all it wanted (a stop string came): it ends with kStop and counts as such.
  virtual void finish(const std::string& id) = 0;
  virtual int64_t abort_all() = 0;
  virtual void reset_prefix_cache() = 0;
  virtual EngineStats stats() const = 0;
  // False once the engine thread has died; the reason is then in health_reason().
  virtual bool healthy() const = 0;
  virtual std::string health_reason() const = 0;
  virtual const EngineConfig& config() const = 0;  // with every default resolved
  virtual int vocab_size() const = 0;
  // Stops admitting, waits for what runs until the deadline, then aborts the rest and ends the engine's thread: once it
  // returns, no callback runs any more. Once, by one thread.
  virtual void drain(Duration timeout) = 0;
};

}  // namespace baton::engine
