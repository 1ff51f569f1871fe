#include "server/chat_request.h"

#include "server/tool_use.h"
#include "text/chat_template.h"

namespace baton::server {
namespace {

// Content may be text, or a list of parts; text parts are joined by newlines, as vLLM does for string templates.
Parsed<Json> flatten_content(const Json& content, size_t message_index) {
  if (content.is_string() || content.is_null()) return content;
  const std::string where = fmt::format("messages.{}.content", message_index);
  if (!content.is_array()) {
    return std::unexpected(bad_request(fmt::format("'{}' must be a string or a list of parts", where), where));
  }
  std::string text;
  bool first = true;
  for (const auto& part : content) {
    std::string type = "text";
    if (part.is_object() && part.contains("type")) {
      if (!part["type"].is_string()) return std::unexpected(bad_request("a part's 'type' must be a string", where));
      type = part["type"].get<std::string>();
    }
    const Json* value = nullptr;
    if (part.is_string())
      value = &part;
    else if (part.is_object() && part.contains("text"))
      value = &part["text"];
    if ((type != "text" && type != "input_text" && type != "output_text") || value == nullptr || !value->is_string()) {
      return std::unexpected(
          bad_request(fmt::format("'{}' has a part of type '{}': this model takes text only", where, type), where));
    }
    if (!std::exchange(first, false)) text += '\n';
    text += value->get<std::string>();
  }
  return Json(std::move(text));
}

Parsed<Json> parse_messages(const Json& body) {
  const auto it = body.find("messages");
  if (it == body.end() || !it->is_array() || it->empty()) {
    return std::unexpected(bad_request("'messages' must be a non-empty list", "messages"));
  }
  Json messages = Json::array();
  for (size_t i = 0; i < it->size(); ++i) {
    Json message = (*it)[i];
    const std::string where = fmt::format("messages.{}", i);
    if (!message.is_object()) return std::unexpected(bad_request(fmt::format("'{}' must be an object", where), where));
    if (!message.contains("role") || !message["role"].is_string()) {
      return std::unexpected(bad_request(fmt::format("'{}.role' must be a string", where), where + ".role"));
    }
    if (message.contains("content")) {
      BATON_PARSE(message["content"], flatten_content(message["content"], i));
    }
    const bool declares_tools = message["role"] == "system" && message.contains("tools");
    if (message["role"] != "assistant" && !declares_tools &&
        (!message.contains("content") || message["content"].is_null())) {
      return std::unexpected(bad_request(fmt::format("'{}.content' is required", where), where + ".content"));
    }
    if (message["role"] == "assistant" && (!message.contains("content") || message["content"].is_null())) {
      message["content"] = "";
    }
    // Templates read the one name or the other.
    for (const auto& [name, other] :
         {std::pair("reasoning", "reasoning_content"), {"reasoning_content", "reasoning"}}) {
      if (message.contains(other) && !message.contains(name)) message[name] = message[other];
    }
    if (auto adapted = adapt_tool_calls(message, where); !adapted) return std::unexpected(adapted.error());
    messages.push_back(std::move(message));
  }
  return messages;
}

void set_special_token(const ServerContext& context, Json& variables, const char* name, std::optional<TokenId> id) {
  variables[name] = id ? std::string(context.tokenizer.token_spelling(*id)) : std::string();
}

}  // namespace

Parsed<RenderedChat> render_chat(const ServerContext& context, const Json& body, bool hide_tools) {
  const text::ChatFormat* format = context.chat_format;
  std::unique_ptr<text::ChatFormat> own;
  BATON_PARSE(const auto request_template, get_string(body, "chat_template"));
  if (request_template) {
    if (!context.options.trust_request_chat_template) {
      return std::unexpected(bad_request(
          "Chat template is passed with request, but --trust-request-chat-template is not set.", "chat_template"));
    }
    auto parsed = text::make_jinja_chat_format(*request_template);
    if (!parsed) return std::unexpected(to_api_error(parsed.error(), "chat_template"));
    own = std::move(*parsed);
    format = own.get();
  }
  if (format == nullptr) {
    return std::unexpected(bad_request(
        "this model has no chat template: start the server with --chat-template FILE, or use /v1/completions"));
  }

  BATON_PARSE(Json messages, parse_messages(body));
  BATON_PARSE(const auto generation_prompt, get_bool(body, "add_generation_prompt"));
  BATON_PARSE(const auto continue_final, get_bool(body, "continue_final_message"));
  const bool continues = continue_final.value_or(false);
  if (continues && generation_prompt.value_or(false)) {
    return std::unexpected(bad_request("Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                                       "continue_final_message"));
  }

  Json variables = context.options.chat_template_kwargs;
  if (const auto it = body.find("chat_template_kwargs"); it != body.end() && !it->is_null()) {
    if (!it->is_object()) {
      return std::unexpected(bad_request("'chat_template_kwargs' must be an object", "chat_template_kwargs"));
    }
    if (it->size() > text::ChatTemplate::kVariablesMax) {  // each is looked up among the others
      return std::unexpected(bad_request(fmt::format("'chat_template_kwargs' has {} members: at most {} are taken",
                                                     it->size(), text::ChatTemplate::kVariablesMax),
                                         "chat_template_kwargs"));
    }
    for (const auto& [key, value] : it->items()) variables[key] = value;
  }
  BATON_PARSE(const auto effort, get_string(body, "reasoning_effort"));
  if (effort) {
    variables["reasoning_effort"] = *effort;
    if (!variables.contains("enable_thinking")) variables["enable_thinking"] = *effort != "none";
  }
  if (format->name() != "jinja") {  // no template is told of them in other servers
    for (const char* name : {"tool_choice", "response_format"}) {
      if (const auto it = body.find(name); it != body.end() && !it->is_null()) variables[name] = *it;
    }
  }
  for (const char* name : {"tools", "documents"}) {
    const auto it = body.find(name);
    if (it == body.end() || it->is_null()) continue;
    if (!it->is_array()) return std::unexpected(bad_request(fmt::format("'{}' must be a list", name), name));
    if (!it->empty() && !(hide_tools && std::string_view(name) == "tools")) variables[name] = *it;
  }
  const std::optional<bool> thinking = thinking_of(variables);
  if (continues && !messages.back()["content"].is_string()) {
    return std::unexpected(bad_request("`continue_final_message` needs a final message with text", "messages"));
  }
  const bool continues_content = continues && messages.back()["content"] != "";
  variables["messages"] = std::move(messages);
  variables["add_generation_prompt"] = continues ? false : generation_prompt.value_or(true);
  set_special_token(context, variables, "bos_token", context.tokenizer.bos_id());
  const auto eos = context.tokenizer.eos_ids();
  set_special_token(context, variables, "eos_token", eos.empty() ? std::nullopt : std::optional(eos.front()));

  auto rendered = format->render({.variables = std::move(variables), .continue_final_message = continues});
  if (!rendered) return std::unexpected(to_api_error(rendered.error(), "messages"));
  return RenderedChat{std::move(*rendered), thinking, continues_content};
}

Parsed<std::vector<TokenId>> encode_chat(const ServerContext& context, const std::vector<text::ChatSegment>& segments,
                                         bool add_special_tokens) {
  size_t bytes = 0;
  for (const text::ChatSegment& segment : segments) bytes += segment.text.size();
  if (auto fits = check_prompt_size(context, bytes); !fits) return std::unexpected(fits.error());
  return text::encode_segments(context.tokenizer, segments, add_special_tokens);
}

}  // namespace baton::server
