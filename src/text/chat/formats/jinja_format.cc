#include "text/chat/formats/jinja_format.h"

#include <cstring>

#include "text/chat/formats/chat_json.h"
#include "text/chat/formats/tool_typescript.h"

namespace baton::text {
namespace {

// Where the last `needle` in the text ends: the first one of the text read backwards. memmem is linear in both; rfind
// isn't, where much of a long needle is found often.
std::optional<size_t> end_of_last(const std::string& text, const std::string& needle) {
  const std::string backwards(text.rbegin(), text.rend()), wanted(needle.rbegin(), needle.rend());
  const void* found = memmem(backwards.data(), backwards.size(), wanted.data(), wanted.size());
  if (found == nullptr) return std::nullopt;
  return text.size() - static_cast<size_t>(static_cast<const char*>(found) - backwards.data());
}

class JinjaFormat final : public ChatFormat {
 public:
  JinjaFormat(std::unique_ptr<ChatTemplate> chat_template, bool wants_typescript)
      : template_(std::move(chat_template)), wants_typescript_(wants_typescript) {}

  std::string_view name() const override { return "jinja"; }

  Result<std::vector<ChatSegment>> render(const ChatRequest& request) const override {
    BATON_TRY_ASSIGN(std::string text, render_text(request.variables));
    if (request.continue_final_message) BATON_TRY(cut_behind_last(request.variables, text));
    std::vector<ChatSegment> segments;
    if (!text.empty()) segments.push_back({std::move(text), true});
    return segments;
  }

 private:
  // The checkpoints with such a template sort the tools before they write them, in either form.
  Result<std::string> render_text(const OrderedJson& variables) const {
    const OrderedJson& tools = chat_member(variables, "tools");
    if (!wants_typescript_ || !is_truthy(tools)) return template_->render(variables);
    OrderedJson more = variables;
    more["tools"] = deep_sorted(tools);
    if (const auto typescript = tools_to_typescript(more["tools"])) more["tools_ts_str"] = *typescript;
    return template_->render(more);
  }

  // What the template puts behind the last message (its end marker) is cut off.
  static Result<void> cut_behind_last(const OrderedJson& variables, std::string& text) {
    BATON_TRY_ASSIGN(const auto messages, read_messages(variables));
    if (messages.empty() || !chat_member(*messages.back().json, "content").is_string()) {
      return fail(Code::kInvalidArgument, "`continue_final_message` needs a final message with text");
    }
    const std::string last = chat_member(*messages.back().json, "content").get<std::string>();
    const size_t trimmed = last.find_last_not_of(" \t\r\n");
    const std::string needle = trimmed == std::string::npos ? last : last.substr(0, trimmed + 1);
    const std::optional<size_t> end = end_of_last(text, needle);
    if (!end) {
      return fail(Code::kInvalidArgument,
                  "continue_final_message is set but the final message does not appear in the chat after applying the "
                  "chat template");
    }
    text.resize(*end);
    return {};
  }

  std::unique_ptr<ChatTemplate> template_;
  bool wants_typescript_;
};

}  // namespace

std::unique_ptr<ChatFormat> make_template_format(std::unique_ptr<ChatTemplate> chat_template, std::string_view source) {
  return std::make_unique<JinjaFormat>(std::move(chat_template), source.find("tools_ts_str") != std::string_view::npos);
}

Result<std::unique_ptr<ChatFormat>> make_jinja_chat_format(std::string_view source) {
  BATON_TRY_ASSIGN(auto parsed, parse_chat_template(source));
  return make_template_format(std::move(parsed), source);
}

}  // namespace baton::text
