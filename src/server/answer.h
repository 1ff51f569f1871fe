// One generation request from submitted choices to the last byte of its HTTP answer, the same for both completion
// routes: a Format writes the route's JSON, run_answer() does the rest (stream or whole, usage, errors, disconnects).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "net/http_server.h"
#include "server/choice_stream.h"
#include "server/request_fields.h"
#include "server/server_context.h"

namespace baton::server {

// One prompt of the request, tokenised.
struct PromptInput {
  std::vector<TokenId> ids;
  std::string text;  // what echo shows
};

// All a Format may need of one choice once (or while) it is generated.
struct ChoiceState {
  explicit ChoiceState(ChoiceStream made) : stream(std::move(made)) {}
  ChoiceStream stream;
  int index = 0;  // in the answer
  int prompt_index = 0;
  bool started = false;  // its first chunk has been written
  ChoiceDelta total;     // everything so far (whole answers only)
  std::vector<std::vector<engine::TokenLogprob>> prompt_logprobs;
};

struct AnswerPlan {
  std::string id;  // "cmpl-…" or "chatcmpl-…"
  std::string request_id;
  int64_t created = 0;
  std::string model;
  CommonFields fields;
  std::vector<PromptInput> prompts;
  bool drop_generated = false;  // max_tokens 0 with echo: one token is computed for its logits and not shown
};

class Format {
 public:
  virtual ~Format() = default;
  // Chunks that carry `delta`; the first call for a choice also opens it. May be empty.
  virtual std::vector<Json> chunks(const AnswerPlan& plan, ChoiceState& choice, const ChoiceDelta& delta) = 0;
  // "choices": [...] and the other members of a whole answer, without usage.
  virtual Json whole(const AnswerPlan& plan, const std::vector<ChoiceState>& choices) = 0;
  // id, object, created, model of a chunk.
  virtual Json chunk_head(const AnswerPlan& plan) = 0;
};

net::Task<void> run_answer(ServerContext& context, AnswerPlan plan, Format& format, net::HttpResponder& responder);

// kInvalidArgument texts that clients match on. max_tokens: as asked for, if it was.
Parsed<int> resolve_max_tokens(std::optional<int64_t> asked, int64_t prompt_tokens, int max_model_len,
                               std::optional<int64_t> server_cap);

}  // namespace baton::server
