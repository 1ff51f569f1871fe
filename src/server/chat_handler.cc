// POST /v1/chat/completions.
#include "server/answer.h"
#include "server/chat_answer.h"
#include "server/chat_request.h"
#include "server/handlers.h"
#include "server/resume.h"
#include "server/tool_use.h"

namespace baton::server {
namespace {

struct ChatRequest {
  CommonFields fields;
  PromptInput prompt;
  std::vector<TokenId> resumed_output;
  int top_logprobs = 0;
  std::string echo_text;
  ToolUse tools;
  std::optional<bool> thinking, starts_inside;  // as OutputFormat::Options has them
  bool include_reasoning = true;
};

Parsed<ChatRequest> parse_chat(ServerContext& context, const Json& body) {
  ChatRequest request;
  const auto& options = context.options;
  BATON_PARSE(request.fields, parse_common(body, options.sampling_defaults, options.limits, context.tokenizer));
  const bool prefill_only = request.fields.kv_transfer && request.fields.kv_transfer->do_remote_decode;
  BATON_PARSE(request.tools, parse_tool_use(options, body, prefill_only));
  BATON_PARSE(const auto include_reasoning, get_bool(body, "include_reasoning"));
  request.include_reasoning = include_reasoning.value_or(true);
  BATON_PARSE(const auto rendered, render_chat(context, body, request.tools.hide_tools));
  request.prompt.text = text::join_segments(rendered.segments);
  request.thinking = rendered.thinking;
  request.starts_inside = rendered.continues_content
                              ? std::optional(false)
                              : options.output_format.prompt_opens_reasoning(request.prompt.text);
  BATON_PARSE(request.prompt.ids,
              encode_chat(context, rendered.segments, request.fields.add_special_tokens.value_or(false)));
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
  BATON_PARSE(request.resumed_output, take_resume(request.fields, std::span(&request.prompt, 1)));
  return request;
}

// False: there is nothing to take apart.
bool set_parsing(const ServerContext& context, const ChatRequest& request, AnswerPlan& plan) {
  const bool calls = request.tools.calls;
  const MarkerTokens& tokens = context.marker_tokens[calls];
  const text::OutputFormat::Options options{.thinking = request.thinking,
                                            .starts_inside = request.starts_inside,
                                            .calls = calls,
                                            .token_markers = &tokens.spellings};
  const auto make = [&format = context.options.output_format, &tokens, options] {
    return OutputParsing{format.make_parser(options), &tokens};
  };
  if (!make().parser) return false;
  plan.make_parsing = make;
  return true;
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
  plan->resumed_output = std::move(request->resumed_output);
  const bool parsed = set_parsing(context, *request, *plan);
  ChatAnswer format(context.tokenizer, {.role = context.options.response_role,
                                        .top_logprobs = request->top_logprobs,
                                        .echo_text = std::move(request->echo_text),
                                        .parsed = parsed,
                                        .include_reasoning = request->include_reasoning,
                                        .parallel_tool_calls = request->tools.parallel});
  co_await run_answer(context, std::move(*plan), format, responder);
}

}  // namespace baton::server
