// What a client's request asks of the proxy, and the bodies that go to the engines for it. Pure, any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"

namespace baton::proxy {

using Json = nlohmann::ordered_json;       // members keep the client's order
inline constexpr int kMaxJsonDepth = 200;  // what writes a body out again recurses

struct RequestPlan {
  std::string path;  // "/v1/completions" or "/v1/chat/completions"
  Json body;         // of the client's, at least the members that the proxy reads
  std::string text;  // the whole of it as it came: looked through once, and copied once for each engine
  struct Place {     // in `text`
    size_t offset = 0, size = 0;
  };
  struct Member {
    Place name, value;  // the name without its quotes
  };
  std::vector<Member> members;
  std::string_view name_of(const Member& m) const { return {text.data() + m.name.offset, m.name.size}; }
  std::string_view value_of(const Member& m) const { return {text.data() + m.value.offset, m.value.size}; }
  bool chat = false;
  bool stream = false;
  bool wants_usage = false;  // the client asked for the usage chunk
  bool wants_ids = false;    // the client asked for token ids
  // False: straight to a decode engine, which computes the prompt itself. So for several prompts or choices, of which a
  // hand-off carries one, and for what needs logits of the prompt, which handed-over KV does not hold.
  bool hand_off = true;
  double load = 0;  // estimate of the prompt, in bytes of text
};

// kInvalidArgument: not JSON, not an object, nested too deep, `stream` not a boolean.
Result<RequestPlan> plan_request(std::string path, std::string body);

// Where a request goes on whose decode engine has let it go or has failed: what it was asked and what it has said.
struct ResumePoint {
  std::vector<TokenId> prompt, outputs;  // outputs: not empty
  std::optional<std::string> seed;       // as kv_transfer_params carry it
  // Baton's engines keep prompt and outputs apart and go on inside a word, a call or a chain of thought, and their
  // answers count from the request's beginning. Others (vLLM-Ascend's) take both for a prompt.
  bool baton = true;
};

// To the prefill engine: one token, no stream, kv_transfer_params that ask for a hand-off.
std::string prefill_body(const RequestPlan& plan, const ResumePoint* resume = nullptr);
// The same, with the kv_transfer_params that the decode engine has sent (D first).
std::string prefill_body(const RequestPlan& plan, std::string_view kv_transfer_params, const ResumePoint* resume);
// To the decode engine: the client's body, P's kv_transfer_params (JSON; empty: none), and what the proxy asks for
// itself: usage in the stream, and token ids.
std::string decode_body(const RequestPlan& plan, std::string_view kv_transfer_params,
                        const ResumePoint* resume = nullptr);

// What the proxy learns from an answer of D (whole, or one chunk) while it makes it the client's.
struct AnswerNotes {
  bool is_error = false;    // {"error": ...}
  bool recomputed = false;  // D gave the request up to make room; never the client's business
  bool only_usage = false;  // the chunk that D sent for the proxy alone
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;  // of choice 0
  int64_t prompt_tokens = -1, completion_tokens = -1;
  // Of a recomputed one.
  std::optional<std::string> seed;  // only Baton's engines say it
  Json logprobs = nullptr;          // of choice 0
};
// `cached_tokens` < 0: P gave none, D's stays. Changes `answer` in place.
AnswerNotes adapt_answer(const RequestPlan& plan, Json& answer, bool is_chunk, int64_t cached_tokens);
void adapt_usage(Json& usage, int64_t cached_tokens, AnswerNotes& notes);

// The whole answer of a resumed request, made that of the whole request: Baton's lacks the logprobs of what was said
// before, others' all of it. `before` is what those engines answered, null for Baton's.
void prepend_logprobs(const Json& logprobs, Json& answer);
void prepend_answer(const Json& before, Json& answer);
// Usage that counts the resumed tokens as prompt, made that of the request.
void recount_usage(const ResumePoint& resume, Json& answer);

// The same for one chunk of a stream without making a value of it: its text for the client is appended to `out` and its
// tokens of choice 0 to `output_ids`. False, and nothing appended, for any chunk that says more than its tokens (an
// error, usage, the prompt's ids, an end, what is not JSON): adapt_answer's business.
bool pass_chunk(const RequestPlan& plan, std::string_view chunk, std::vector<TokenId>& output_ids, std::string& out);
// The same for a whole answer: `out` becomes the client's text. False, and nothing changed, for an error, "recomputed",
// "abort", no choice, and what is not JSON.
bool pass_answer(const RequestPlan& plan, std::string_view answer, int64_t cached_tokens, AnswerNotes& notes,
                 std::string& out);

// {"error": {message, type, param: null, code}} on one line.
std::string error_json(int status, std::string_view type, std::string_view message);

}  // namespace baton::proxy
