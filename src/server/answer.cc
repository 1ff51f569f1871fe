#include "server/answer.h"

#include <algorithm>
#include <charconv>

#include "net/client_name.h"
#include "net/sse.h"
#include "server/generation.h"
#include "server/json_text.h"

namespace baton::server {
namespace {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  bool with_details = false;

  Json to_json() const {
    Json usage;
    usage["prompt_tokens"] = prompt_tokens;
    usage["total_tokens"] = prompt_tokens + completion_tokens;
    usage["completion_tokens"] = completion_tokens;
    usage["prompt_tokens_details"] = with_details ? Json{{"cached_tokens", cached_tokens}} : Json(nullptr);
    return usage;
  }
};

// Joins what is one piece of text, so that a whole answer does not hold an event for every token.
void add_events(text::OutputEvents& total, text::OutputEvents more) {
  for (auto& event : more) {
    using Kind = text::OutputEvent::Kind;
    const bool goes_on = !total.empty() && total.back().kind == event.kind && event.kind != Kind::kCallBegin &&
                         event.kind != Kind::kCallEnd;
    if (goes_on) {
      total.back().text += event.text;
    } else {
      total.push_back(std::move(event));
    }
  }
}

// The state of one running answer: choices, and how they are submitted.
class Answer {
 public:
  Answer(ServerContext& context, AnswerPlan& plan, Format& format, net::HttpResponder& responder)
      : context_(context),
        plan_(plan),
        format_(format),
        responder_(responder),
        generation_(context.engine, responder.executor()) {
    usage_.with_details = context.options.enable_prompt_tokens_details;
    for (size_t prompt = 0; prompt < plan.prompts.size(); ++prompt) {
      usage_.prompt_tokens += static_cast<int64_t>(plan.prompts[prompt].ids.size());
      for (int i = 0; i < plan.fields.n; ++i) {
        auto& choice = choices_.emplace_back(
            ChoiceStream(context.tokenizer, plan.fields,
                         plan.fields.return_tokens_as_token_ids || context.options.return_tokens_as_token_ids,
                         plan.make_parsing ? plan.make_parsing() : OutputParsing{}));
        choice.index = static_cast<int>(choices_.size()) - 1;
        choice.prompt_index = static_cast<int>(prompt);
      }
    }
  }

  net::Task<void> run() {
    if (auto resumed = resume(); !resumed) {
      co_await responder_.respond(error_response(to_api_error(resumed.error())));
      co_return;
    }
    if (auto submitted = submit_first(); !submitted) {
      co_await responder_.respond(context_.refuse(to_api_error(submitted.error())));
      co_return;
    }
    std::vector<std::string> ids;
    for (size_t i = 0; i < choices_.size(); ++i) ids.push_back(engine_id(i));
    const LiveRequests::Entry live(context_.live, {plan_.id, plan_.request_id}, std::move(ids));
    responder_.on_client_gone([this] { generation_.cancel(); });
    co_await (plan_.fields.stream ? run_stream() : run_whole());
    responder_.on_client_gone(nullptr);
  }

 private:
  std::string engine_id(size_t index) const { return fmt::format("{}-{}", plan_.id, index); }

  engine::EngineRequest engine_request(size_t index) const {
    const auto& choice = choices_[index];
    engine::EngineRequest request;
    request.id = engine_id(index);
    request.prompt_ids = plan_.prompts[choice.prompt_index].ids;
    request.sampling = plan_.fields.sampling;
    request.prompt_index = choice.prompt_index;
    request.choice_index = static_cast<int>(index) % plan_.fields.n;
    request.priority = plan_.fields.priority;
    request.client = plan_.client;
    request.cache_salt = plan_.fields.cache_salt;
    request.output_ids = plan_.resumed_output;
    request.data_parallel_rank = plan_.data_parallel_rank;
    // One choice fetches what P holds; the others find it in the prefix cache once the first has it.
    if (index == 0) request.kv_transfer = plan_.fields.kv_transfer;
    // The proxy brings one choice back, no more.
    request.may_leave = choices_.size() == 1 && request.kv_transfer && request.kv_transfer->do_remote_prefill;
    return request;
  }

  // Takes what was generated elsewhere through detokenizer, stop strings and parsers, as if it had been generated here.
  Result<void> resume() {
    if (plan_.resumed_output.empty()) return {};
    auto& choice = choices_.front();
    engine::RequestOutput output;
    for (const TokenId token : plan_.resumed_output) {
      output.tokens.push_back({.token = token, .logprob = {}, .top_logprobs = {}});
      choice.resumed_spelling += static_cast<int64_t>(
          ChoiceStream::spelling(context_.tokenizer, token,
                                 plan_.fields.return_tokens_as_token_ids || context_.options.return_tokens_as_token_ids)
              .size());
    }
    auto delta = choice.stream.push(output);
    if (delta.finish_reason) {
      return fail(Code::kInvalidArgument, "kv_transfer_params: the tokens to resume end with a stop string");
    }
    usage_.completion_tokens = choice.stream.completion_tokens();
    if (plan_.fields.stream) {
      (void)format_.chunks(plan_, choice, delta);
    } else {
      add_to_total(choice, std::move(delta));
    }
    return {};
  }

  static void add_to_total(ChoiceState& choice, ChoiceDelta delta) {
    auto& total = choice.total;
    total.text += delta.text;
    add_events(total.events, std::move(delta.events));
    total.token_ids.insert(total.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
    std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(total.logprobs));
    if (!delta.finish_reason) return;
    total.finish_reason = std::move(delta.finish_reason);
    total.stop_reason = std::move(delta.stop_reason);
  }

  // Nothing but the news, which is the proxy's.
  Json left_chunk(const ChoiceState& choice) {
    Json chunk = format_.chunk_head(plan_);
    Json entry{{"index", choice.index}, {"finish_reason", "stop"}, {"stop_reason", kRecomputedReason}};
    if (chunk["object"] == "text_completion") {
      entry["text"] = "";
    } else {
      entry["delta"] = Json::object();
    }
    chunk["choices"] = Json::array({std::move(entry)});
    chunk["kv_transfer_params"] = kv_transfer_;
    return chunk;
  }

  // With a hand-off the first choice goes alone, so that the prompt is fetched once.
  Result<void> submit_first() {
    const bool first_alone = plan_.fields.kv_transfer.has_value() && choices_.size() > 1;
    submitted_ = first_alone ? 1 : choices_.size();
    for (size_t i = 0; i < submitted_; ++i) BATON_TRY(generation_.submit(i, engine_request(i)));
    return {};
  }
  Result<void> submit_rest() {
    for (; submitted_ < choices_.size(); ++submitted_) {
      BATON_TRY(generation_.submit(submitted_, engine_request(submitted_)));
    }
    return {};
  }

  // The next delta and its choice; or the error that ends the whole answer.
  net::Task<Result<std::pair<ChoiceState*, ChoiceDelta>>> next_delta() {
    for (;;) {
      BATON_CO_TRY_ASSIGN(auto next, co_await generation_.next());
      auto& choice = choices_[next.choice];
      auto& output = next.output;
      if (output.error) co_return fail(*output.error);
      BATON_CO_TRY(submit_rest());
      if (choice.stream.finished()) continue;  // what the engine still made after a stop string
      usage_.cached_tokens += output.cached_tokens;
      if (!output.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(output.prompt_logprobs);
      if (output.kv_transfer) kv_transfer_ = output.kv_transfer->to_json();
      if (output.finish == engine::FinishReason::kRecomputed) {
        wire::KvTransferParams params;
        params.baton_seed = output.seed;
        kv_transfer_ = params.to_json();
        left_ = true;
      }
      const int before = choice.stream.completion_tokens();
      auto delta = choice.stream.push(output);
      if (choice.stream.ended_by_stop_string()) generation_.finish(next.choice);
      if (plan_.drop_generated) {
        delta.text.clear();
        delta.token_ids.clear();
        delta.logprobs.clear();
        if (delta.finish_reason) delta.finish_reason = "length";
      } else {
        usage_.completion_tokens += choice.stream.completion_tokens() - before;
      }
      if (delta.finish_reason) ++finished_;
      co_return std::pair(&choice, std::move(delta));
    }
  }

  net::Task<void> run_whole() {
    while (finished_ < choices_.size()) {
      auto next = co_await next_delta();
      if (!next) {
        co_await answer_error(next.error());
        co_return;
      }
      auto& [choice, delta] = *next;
      add_to_total(*choice, std::move(delta));
    }
    Json body = format_.whole(plan_, choices_);
    body["usage"] = usage_.to_json();
    body["kv_transfer_params"] = kv_transfer_;
    net::HttpResponse response{.status = 200, .body = to_text(body)};
    response.headers.set("Content-Type", "application/json");
    add_request_id(response.headers);
    co_await responder_.respond(std::move(response));
  }

  net::Task<void> run_stream() {
    while (finished_ < choices_.size()) {
      auto next = co_await next_delta();
      if (!next) {
        co_await answer_error(next.error());
        co_return;
      }
      auto& [choice, delta] = *next;
      std::string events;
      if (left_) {
        if (co_await write(net::sse_event(to_text(left_chunk(*choice))) + net::sse_event("[DONE]"))) {
          co_await responder_.end_stream();
        }
        co_return;
      }
      for (Json& chunk : format_.chunks(plan_, *choice, delta)) {
        if (plan_.fields.continuous_usage) chunk["usage"] = usage_.to_json();
        if (kv_transfer_.is_object() && delta.finish_reason) chunk["kv_transfer_params"] = kv_transfer_;
        events += net::sse_event(to_text(chunk));
      }
      if (!(co_await write(events))) co_return;
    }
    std::string tail;
    if (plan_.fields.include_usage || context_.options.force_include_usage) {
      Json chunk = format_.chunk_head(plan_);
      chunk["choices"] = Json::array();
      chunk["usage"] = usage_.to_json();
      tail += net::sse_event(to_text(chunk));
    }
    tail += net::sse_event("[DONE]");
    if (co_await write(tail)) co_await responder_.end_stream();
  }

  net::Task<bool> write(const std::string& events) {
    if (events.empty()) co_return true;
    if (!responder_.answered()) {
      net::HttpHeaders headers;
      headers.set("Content-Type", "text/event-stream; charset=utf-8");
      headers.set("Cache-Control", "no-cache");
      add_request_id(headers);
      if (!(co_await responder_.begin_stream(200, std::move(headers)))) co_return false;
    }
    co_return (co_await responder_.write_chunk(events)).has_value();
  }

  // Before the first byte: a status. After it: an error event, and an end that is not silent.
  net::Task<void> answer_error(const Status& status) {
    if (status.code() == Code::kCancelled) co_return;  // nobody is there to read it
    const ApiError error = to_api_error(status);
    if (!responder_.answered()) {
      co_await responder_.respond(context_.refuse(error));
      co_return;
    }
    if (co_await write(net::sse_event(to_text(error_body(error))) + net::sse_event("[DONE]"))) {
      co_await responder_.end_stream();
    }
  }

  void add_request_id(net::HttpHeaders& headers) const {
    if (context_.options.enable_request_id_headers) headers.set("X-Request-Id", plan_.request_id);
  }

  ServerContext& context_;
  AnswerPlan& plan_;
  Format& format_;
  net::HttpResponder& responder_;
  Generation generation_;
  std::vector<ChoiceState> choices_;
  size_t submitted_ = 0;
  size_t finished_ = 0;
  Usage usage_;
  Json kv_transfer_ = nullptr;
  bool left_ = false;  // the engine had no block for it
};

// As in vLLM, what is no number says nothing.
std::optional<int> data_parallel_rank(const net::HttpRequest& http) {
  const auto header = http.headers.get("X-data-parallel-rank");
  int rank = 0;
  if (!header) return std::nullopt;
  const auto [end, error] = std::from_chars(header->data(), header->data() + header->size(), rank);
  if (error != std::errc() || end != header->data() + header->size()) return std::nullopt;
  return rank;
}

}  // namespace

AnswerPlan make_plan(ServerContext& context, const net::HttpRequest& http, std::string_view id_prefix,
                     CommonFields fields) {
  AnswerPlan plan;
  plan.request_id = context.request_id(http, fields.request_id);
  plan.id = std::string(id_prefix) + plan.request_id;
  plan.data_parallel_rank = data_parallel_rank(http);
  plan.client = net::client_name(http, context.options.api_keys.size() > 1, context.options.forwarders);
  plan.created = unix_time();
  plan.model = context.model_name();
  plan.fields = std::move(fields);
  return plan;
}

net::Task<void> run_answer(ServerContext& context, AnswerPlan plan, Format& format, net::HttpResponder& responder) {
  context.metrics.request_params_n.observe(plan.fields.n);
  Answer answer(context, plan, format, responder);
  co_await answer.run();
}

Parsed<int> resolve_max_tokens(std::optional<int64_t> asked, int64_t prompt_tokens, int max_model_len,
                               std::optional<int64_t> server_cap) {
  if (prompt_tokens == 0)
    return std::unexpected(bad_request("The prompt is empty: at least one token is needed.", "prompt"));
  if (prompt_tokens >= max_model_len) {
    return std::unexpected(bad_request(
        fmt::format("This model's maximum context length is {} tokens. However, your request has {} input tokens. "
                    "Please reduce the length of the input messages.",
                    max_model_len, prompt_tokens),
        "input_tokens"));
  }
  const int64_t room = max_model_len - prompt_tokens;
  if (!asked) return static_cast<int>(std::min(room, server_cap.value_or(room)));
  if (*asked > room) {
    return std::unexpected(bad_request(
        fmt::format("'max_tokens' or 'max_completion_tokens' is too large: {}. This model's maximum context length is "
                    "{} tokens and your request has {} input tokens ({} > {} - {}).",
                    *asked, max_model_len, prompt_tokens, *asked, max_model_len, prompt_tokens),
        "max_tokens"));
  }
  return static_cast<int>(*asked);
}

}  // namespace baton::server
