// POST /v1/completions.
#include <algorithm>

#include "server/answer.h"
#include "server/handlers.h"
#include "server/json_text.h"
#include "server/logprobs_json.h"
#include "server/resume.h"

namespace baton::server {
namespace {

struct CompletionRequest {
  CommonFields fields;
  std::vector<PromptInput> prompts;
  bool echo = false;
  bool drop_generated = false;
  std::vector<TokenId> resumed_output;
};

class CompletionFormat final : public Format {
 public:
  CompletionFormat(const text::Tokenizer& tokenizer, bool echo) : tokenizer_(tokenizer), echo_(echo) {}

  Json chunk_head(const AnswerPlan& plan) override {
    return {{"id", plan.id}, {"object", "text_completion"}, {"created", plan.created}, {"model", plan.model}};
  }

  std::vector<Json> chunks(const AnswerPlan& plan, ChoiceState& choice, const ChoiceDelta& delta) override {
    ChoiceDelta shown = delta;
    const bool opens = !std::exchange(choice.started, true);
    if (opens && echo_) prepend_prompt(plan, choice, shown);
    if (shown.empty() && !opens) return {};
    Json entry = choice_json(plan, choice, shown, opens);
    offsets_[choice.index] += static_cast<int64_t>(shown.text.size());
    Json chunk = chunk_head(plan);
    chunk["choices"] = Json::array({std::move(entry)});
    std::vector<Json> chunks;
    chunks.push_back(std::move(chunk));
    return chunks;
  }

  Json whole(const AnswerPlan& plan, const std::vector<ChoiceState>& choices) override {
    Json body = chunk_head(plan);
    body["choices"] = Json::array();
    for (const auto& choice : choices) {
      ChoiceDelta shown = choice.total;
      if (echo_) prepend_prompt(plan, choice, shown);
      offsets_[choice.index] = choice.resumed_spelling;
      Json entry = choice_json(plan, choice, shown, true);
      entry["prompt_logprobs"] =
          plan.fields.sampling.prompt_logprobs && !echo_
              ? prompt_logprobs_json(tokenizer_, plan.prompts[choice.prompt_index].ids, choice.prompt_logprobs)
              : Json(nullptr);
      body["choices"].push_back(std::move(entry));
    }
    body["service_tier"] = nullptr;
    body["system_fingerprint"] = nullptr;
    return body;
  }

 private:
  Json choice_json(const AnswerPlan& plan, const ChoiceState& choice, const ChoiceDelta& shown, bool with_prompt_ids) {
    Json entry;
    entry["index"] = choice.index;
    entry["text"] = shown.text;
    entry["logprobs"] = plan.fields.sampling.logprobs ? completion_logprobs_json(shown.logprobs, offsets_[choice.index])
                                                      : Json(nullptr);
    entry["finish_reason"] = shown.finish_reason ? Json(*shown.finish_reason) : Json(nullptr);
    entry["stop_reason"] = stop_reason_json(shown);
    const bool ids = plan.fields.return_token_ids;
    entry["token_ids"] = ids ? Json(shown.token_ids) : Json(nullptr);
    entry["prompt_token_ids"] = ids && with_prompt_ids ? Json(plan.prompts[choice.prompt_index].ids) : Json(nullptr);
    return entry;
  }

  void prepend_prompt(const AnswerPlan& plan, const ChoiceState& choice, ChoiceDelta& shown) const {
    const auto& prompt = plan.prompts[choice.prompt_index];
    shown.text = prompt.text + shown.text;
    shown.token_ids.insert(shown.token_ids.begin(), prompt.ids.begin(), prompt.ids.end());
    if (plan.fields.sampling.logprobs) {
      auto entries = prompt_entries(tokenizer_, prompt.ids, choice.prompt_logprobs, *plan.fields.sampling.logprobs);
      shown.logprobs.insert(shown.logprobs.begin(), entries.begin(), entries.end());
    }
  }

  const text::Tokenizer& tokenizer_;
  bool echo_;
  std::map<int, int64_t> offsets_;
};

Parsed<PromptInput> prompt_from_text(const ServerContext& context, const std::string& text,
                                     const CommonFields& fields) {
  BATON_PARSE(auto ids, encode_prompt(context, text, fields.add_special_tokens.value_or(true)));
  return PromptInput{std::move(ids), text};
}

Parsed<PromptInput> prompt_from_ids(const ServerContext& context, const Json& ids) {
  const Json holder{{"prompt", ids}};
  BATON_PARSE(auto parsed, get_token_ids(holder, "prompt", context.options.limits.vocab_size));
  std::string text = text::decode(context.tokenizer, parsed, false);
  return PromptInput{std::move(parsed), std::move(text)};
}

// prompt: a string, a list of strings, a list of ids, or a list of lists of ids.
Parsed<std::vector<PromptInput>> parse_prompts(const ServerContext& context, const Json& body,
                                               const CommonFields& fields) {
  const auto it = body.find("prompt");
  if (it == body.end() || it->is_null()) return std::unexpected(bad_request("'prompt' is required", "prompt"));
  std::vector<PromptInput> prompts;
  if (it->is_string()) {
    BATON_PARSE(auto prompt, prompt_from_text(context, it->get<std::string>(), fields));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  const char* const kWanted = "'prompt' must be a string, a list of strings, a list of token ids or a list of those";
  if (!it->is_array()) return std::unexpected(bad_request(kWanted, "prompt"));
  if (it->empty()) return std::unexpected(bad_request("'prompt' must not be empty", "prompt"));
  if (it->front().is_number()) {
    BATON_PARSE(auto prompt, prompt_from_ids(context, *it));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  // What could never be admitted is refused before anything of it is tokenised.
  const size_t most = std::min(context.options.limits.max_prompts,
                               static_cast<size_t>(context.engine.config().max_waiting_requests / fields.n));
  if (it->size() > most) {
    return std::unexpected(bad_request(
        fmt::format("'prompt' has {} entries with n = {}; at most {}", it->size(), fields.n, most), "prompt"));
  }
  for (const auto& entry : *it) {
    if (entry.is_string()) {
      BATON_PARSE(auto prompt, prompt_from_text(context, entry.get<std::string>(), fields));
      prompts.push_back(std::move(prompt));
    } else if (entry.is_array()) {
      BATON_PARSE(auto prompt, prompt_from_ids(context, entry));
      prompts.push_back(std::move(prompt));
    } else {
      return std::unexpected(bad_request(kWanted, "prompt"));
    }
  }
  return prompts;
}

Parsed<CompletionRequest> parse_completion(ServerContext& context, const Json& body) {
  CompletionRequest request;
  const auto& limits = context.options.limits;
  BATON_PARSE(request.fields, parse_common(body, context.options.sampling_defaults, limits, context.tokenizer));
  BATON_PARSE(request.prompts, parse_prompts(context, body, request.fields));
  BATON_PARSE(const auto echo, get_bool(body, "echo"));
  request.echo = echo.value_or(false);
  if (const auto suffix = body.find("suffix"); suffix != body.end() && !suffix->is_null()) {
    return std::unexpected(bad_request("suffix is not currently supported", "suffix"));
  }
  const int64_t most = limits.max_logprobs < 0 ? INT32_MAX : limits.max_logprobs;
  BATON_PARSE(const auto logprobs, get_int(body, "logprobs", -1, most));
  BATON_PARSE(const auto prompt_logprobs, get_int(body, "prompt_logprobs", -1, most));
  if (prompt_logprobs && *prompt_logprobs != 0 && request.fields.stream) {
    return std::unexpected(bad_request("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs"));
  }
  auto& sampling = request.fields.sampling;
  if (logprobs) sampling.logprobs = static_cast<int>(*logprobs);
  if (prompt_logprobs) sampling.prompt_logprobs = static_cast<int>(*prompt_logprobs);
  if (request.echo && logprobs) sampling.prompt_logprobs = sampling.logprobs;

  BATON_PARSE(auto max_tokens, get_int(body, "max_tokens", 0, INT32_MAX));
  if (!max_tokens) max_tokens = 16;
  if (*max_tokens == 0) {
    if (!request.echo) {
      return std::unexpected(bad_request("max_tokens must be at least 1, got 0 (0 needs `echo`).", "max_tokens"));
    }
    request.drop_generated = true;
    max_tokens = 1;
  }
  int64_t shortest_room = INT32_MAX;
  for (auto& prompt : request.prompts) {
    if (const auto keep = request.fields.truncate_prompt_tokens) {
      const size_t kept = *keep < 0 ? context.engine.config().max_model_len : static_cast<size_t>(*keep);
      if (prompt.ids.size() > kept) {
        prompt.ids.erase(prompt.ids.begin(), prompt.ids.end() - kept);
        prompt.text = text::decode(context.tokenizer, prompt.ids, false);
      }
    }
    BATON_PARSE(const int room, resolve_max_tokens(max_tokens, static_cast<int64_t>(prompt.ids.size()),
                                                   context.engine.config().max_model_len, std::nullopt));
    shortest_room = std::min<int64_t>(shortest_room, room);
  }
  sampling.max_tokens = static_cast<int>(shortest_room);
  BATON_PARSE(request.resumed_output, take_resume(request.fields, request.prompts));
  return request;
}

}  // namespace

net::Task<void> handle_completions(ServerContext& context, net::HttpRequest& http, net::HttpResponder& responder) {
  auto request = parse_request<CompletionRequest>(context, http, parse_completion);
  auto plan = plan_answer(context, http, "cmpl-", request);
  if (!plan) {
    co_await responder.respond(error_response(plan.error()));
    co_return;
  }
  plan->prompts = std::move(request->prompts);
  plan->drop_generated = request->drop_generated;
  plan->resumed_output = std::move(request->resumed_output);
  CompletionFormat format(context.tokenizer, request->echo);
  co_await run_answer(context, std::move(*plan), format, responder);
}

}  // namespace baton::server
