// POST /v1/chat/completions.
#include <algorithm>

#include "server/answer.h"
#include "server/chat_request.h"
#include "server/handlers.h"
#include "server/json_text.h"
#include "server/logprobs_json.h"

namespace baton::server {
namespace {

struct ChatRequest {
  CommonFields fields;
  PromptInput prompt;
  int top_logprobs = 0;
  bool echo = false;
  std::string echo_text;
};

class ChatFormat final : public Format {
 public:
  ChatFormat(const text::Tokenizer& tokenizer, std::string role, int top_logprobs, std::string echo_text)
      : tokenizer_(tokenizer), role_(std::move(role)), top_logprobs_(top_logprobs), echo_text_(std::move(echo_text)) {}

  Json chunk_head(const AnswerPlan& plan) override {
    return {{"id", plan.id}, {"object", "chat.completion.chunk"}, {"created", plan.created}, {"model", plan.model}};
  }

  std::vector<Json> chunks(const AnswerPlan& plan, ChoiceState& choice, const ChoiceDelta& delta) override {
    std::vector<Json> chunks;
    if (!std::exchange(choice.started, true)) {
      // The role comes with the first token, not before: clients take the first chunk as the first token's time.
      Json entry{{"index", choice.index},
                 {"delta", {{"role", role_}, {"content", echo_text_}}},
                 {"logprobs", nullptr},
                 {"finish_reason", nullptr}};
      chunks.push_back(chunk(plan, std::move(entry)));
      if (plan.fields.return_token_ids) chunks.back()["prompt_token_ids"] = plan.prompts[0].ids;
    }
    if (delta.empty()) return chunks;
    Json entry;
    entry["index"] = choice.index;
    entry["delta"] = delta.text.empty() && delta.finish_reason ? Json::object() : Json{{"content", delta.text}};
    entry["logprobs"] = logprobs_json(plan, delta);
    entry["finish_reason"] = delta.finish_reason ? Json(*delta.finish_reason) : Json(nullptr);
    if (delta.finish_reason) entry["stop_reason"] = stop_reason_json(delta);
    if (plan.fields.return_token_ids) entry["token_ids"] = delta.token_ids;
    chunks.push_back(chunk(plan, std::move(entry)));
    return chunks;
  }

  Json whole(const AnswerPlan& plan, const std::vector<ChoiceState>& choices) override {
    Json body = chunk_head(plan);
    body["object"] = "chat.completion";
    body["choices"] = Json::array();
    for (const auto& choice : choices) {
      Json entry;
      entry["index"] = choice.index;
      entry["message"] = {{"role", role_},       {"content", echo_text_ + choice.total.text},
                          {"refusal", nullptr},  {"annotations", nullptr},
                          {"audio", nullptr},    {"function_call", nullptr},
                          {"reasoning", nullptr}};
      entry["logprobs"] = logprobs_json(plan, choice.total);
      entry["finish_reason"] = choice.total.finish_reason ? Json(*choice.total.finish_reason) : Json(nullptr);
      entry["stop_reason"] = stop_reason_json(choice.total);
      entry["token_ids"] = plan.fields.return_token_ids ? Json(choice.total.token_ids) : Json(nullptr);
      body["choices"].push_back(std::move(entry));
    }
    body["service_tier"] = nullptr;
    body["system_fingerprint"] = nullptr;
    body["prompt_logprobs"] = plan.fields.sampling.prompt_logprobs
                                  ? prompt_logprobs_json(tokenizer_, plan.prompts[0].ids, choices[0].prompt_logprobs)
                                  : Json(nullptr);
    body["prompt_token_ids"] = plan.fields.return_token_ids ? Json(plan.prompts[0].ids) : Json(nullptr);
    return body;
  }

 private:
  Json chunk(const AnswerPlan& plan, Json entry) {
    Json made = chunk_head(plan);
    made["choices"] = Json::array({std::move(entry)});
    return made;
  }
  Json logprobs_json(const AnswerPlan& plan, const ChoiceDelta& delta) const {
    return plan.fields.sampling.logprobs ? chat_logprobs_json(delta.logprobs, top_logprobs_) : Json(nullptr);
  }

  const text::Tokenizer& tokenizer_;
  std::string role_;
  int top_logprobs_;
  std::string echo_text_;
};

// Tool calls are parsed by a later version: what would need it is refused, what would not goes on.
Parsed<void> check_tools(const Json& body) {
  const auto tools = body.find("tools");
  const bool has_tools = tools != body.end() && tools->is_array() && !tools->empty();
  const auto choice = body.find("tool_choice");
  const bool chosen = choice != body.end() && !choice->is_null();
  if (!has_tools) {
    if (chosen && *choice != "none" && *choice != "auto") {
      return std::unexpected(bad_request("When using `tool_choice`, `tools` must be set.", "tool_choice"));
    }
    return {};
  }
  if (chosen && *choice == "none") return {};
  if (!chosen || *choice == "auto") {
    return std::unexpected(bad_request(
        "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set, which are not in "
        "this version of Baton; send \"tool_choice\": \"none\"",
        "tool_choice"));
  }
  return std::unexpected(ApiError{501, "NotImplementedError",
                                  "tool_choice 'required' or a named function is not in this version of Baton",
                                  "tool_choice"});
}

Parsed<ChatRequest> parse_chat(ServerContext& context, const Json& body) {
  ChatRequest request;
  const auto& options = context.options;
  BATON_PARSE(request.fields, parse_common(body, options.sampling_defaults, options.limits, context.tokenizer));
  if (auto checked = check_tools(body); !checked) return std::unexpected(checked.error());
  BATON_PARSE(const auto segments, render_chat(context, body));
  request.prompt.text = text::join_segments(segments);
  BATON_PARSE(request.prompt.ids, encode_chat(context, segments, request.fields.add_special_tokens.value_or(false)));
  if (const auto keep = request.fields.truncate_prompt_tokens) {
    const size_t kept = *keep < 0 ? context.engine.config().max_model_len : static_cast<size_t>(*keep);
    auto& ids = request.prompt.ids;
    if (ids.size() > kept) ids.erase(ids.begin(), ids.end() - kept);
  }
  BATON_PARSE(const auto echo, get_bool(body, "echo"));
  if (echo.value_or(false)) {
    const Json& last = body["messages"].back();
    if (last.contains("content") && last["content"].is_string()) request.echo_text = last["content"].get<std::string>();
  }

  const int64_t most = options.limits.max_logprobs < 0 ? INT32_MAX : options.limits.max_logprobs;
  BATON_PARSE(const auto logprobs, get_bool(body, "logprobs"));
  BATON_PARSE(const auto top_logprobs, get_int(body, "top_logprobs", -1, most));
  if (top_logprobs && *top_logprobs != 0 && !logprobs.value_or(false)) {
    return std::unexpected(bad_request("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs"));
  }
  BATON_PARSE(const auto prompt_logprobs, get_int(body, "prompt_logprobs", -1, most));
  if (prompt_logprobs && *prompt_logprobs != 0 && request.fields.stream) {
    return std::unexpected(bad_request("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs"));
  }
  auto& sampling = request.fields.sampling;
  request.top_logprobs = static_cast<int>(top_logprobs.value_or(0));
  if (logprobs.value_or(false)) sampling.logprobs = request.top_logprobs;
  if (prompt_logprobs) sampling.prompt_logprobs = static_cast<int>(*prompt_logprobs);

  BATON_PARSE(auto max_tokens, get_int(body, "max_completion_tokens", 1, INT32_MAX));
  if (!max_tokens) {
    BATON_PARSE(max_tokens, get_int(body, "max_tokens", 1, INT32_MAX));
  }
  BATON_PARSE(sampling.max_tokens,
              resolve_max_tokens(max_tokens, static_cast<int64_t>(request.prompt.ids.size()),
                                 context.engine.config().max_model_len, options.sampling_defaults.max_new_tokens));
  return request;
}

}  // namespace

net::Task<void> handle_chat_completions(ServerContext& context, net::HttpRequest& http, net::HttpResponder& responder) {
  auto request = parse_request<ChatRequest>(context, http, parse_chat);
  auto plan = plan_answer(context, http, "chatcmpl-", request);
  if (!plan) {
    co_await responder.respond(error_response(plan.error()));
    co_return;
  }
  plan->prompts.push_back(std::move(request->prompt));
  ChatFormat format(context.tokenizer, context.options.response_role, request->top_logprobs,
                    std::move(request->echo_text));
  co_await run_answer(context, std::move(*plan), format, responder);
}

}  // namespace baton::server
