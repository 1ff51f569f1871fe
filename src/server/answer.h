// One generation request from submitted choices to the last byte of its HTTP answer, the same for both completion
// routes: a Format writes the route's JSON, run_answer() does the rest (stream or whole, usage, errors, disconnects).
#pragma once

#include <functional>
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
  bool started = false;          // its first chunk has been written
  int64_t resumed_spelling = 0;  // bytes of the resumed tokens as logprobs spell them
  ChoiceDelta total;             // everything so far (whole answers only)
  std::vector<std::vector<engine::TokenLogprob>> prompt_logprobs;
};

struct AnswerPlan {
  std::string id;  // "cmpl-…" or "chatcmpl-…"
  std::string request_id;
  std::string client;                     // see net/client_name.h
  std::optional<int> data_parallel_rank;  // header X-data-parallel-rank
  int64_t created = 0;
  std::string model;
  CommonFields fields;
  std::vector<PromptInput> prompts;
  // Generated elsewhere before: this answer goes on behind them, and a whole one includes them (but not their
  // logprobs).
  std::vector<TokenId> resumed_output;
  std::function<OutputParsing()> make_parsing;  // one for each choice; empty: text stays as it is
  bool drop_generated = false;  // max_tokens 0 with echo: one token is computed for its logits and not shown
};

// The body as the route's own Request, by the route's `parse`.
template <typename Request>
Parsed<Request> parse_request(ServerContext& context, const net::HttpRequest& http,
                              Parsed<Request> (*parse)(ServerContext&, const Json&)) {
  auto body = parse_body(http.body);
  if (!body) return std::unexpected(body.error());
  return parse(context, *body);
}

AnswerPlan make_plan(ServerContext& context, const net::HttpRequest& http, std::string_view id_prefix,
                     CommonFields fields);

// A plan under fresh ids with the request's fields moved into it, unless it failed to parse or asks for another model.
template <typename Request>
Parsed<AnswerPlan> plan_answer(ServerContext& context, const net::HttpRequest& http, std::string_view id_prefix,
                               Parsed<Request>& request) {
  if (!request) return std::unexpected(request.error());
  if (!context.serves(request->fields.model)) return std::unexpected(model_not_found(request->fields.model));
  return make_plan(context, http, id_prefix, std::move(request->fields));
}

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
