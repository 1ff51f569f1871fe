#include "text/chat/formats/kimi_k2.h"

#include "text/chat/formats/chat_json.h"
#include "text/chat/formats/python_json.h"
#include "text/chat/formats/segment_writer.h"
#include "text/chat/formats/tool_typescript.h"

namespace baton::text {
namespace {

constexpr std::string_view kUser = "<|im_user|>", kAssistant = "<|im_assistant|>", kSystem = "<|im_system|>";
constexpr std::string_view kMiddle = "<|im_middle|>", kEnd = "<|im_end|>", kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kDefaultSystem = "You are Kimi, an AI assistant created by Moonshot AI.";

// One rendering.
class Encoder {
 public:
  Encoder(const KimiK2Options& options, const ChatRequest& request)
      : options_(options), variables_(request.variables), continues_(request.continue_final_message) {}

  Result<std::vector<ChatSegment>> run() {
    BATON_TRY(declare_tools());
    BATON_TRY_ASSIGN(const auto messages, read_messages(variables_));
    if (options_.default_system && (messages.empty() || messages[0].role != "system")) {
      begin(kSystem, "system");
      out_.text(std::string(kDefaultSystem));
      out_.control(kEnd);
    }
    if (continues_ && (messages.empty() || messages.back().role == "tool")) {
      return fail(Code::kInvalidArgument, "continue_final_message needs a last message that is not a tool's");
    }
    const size_t first_kept = first_kept_reasoning(messages);
    for (size_t i = 0; i < messages.size(); ++i) {
      auto written = write_message(messages[i], i >= first_kept, continues_ && i + 1 == messages.size());
      if (!written) return fail(written.error().with_context(fmt::format("messages.{}", i)));
    }
    if (!continues_ && is_truthy(chat_member(variables_, "add_generation_prompt"))) {
      begin(kAssistant, "assistant");
      if (options_.opens_think) {
        out_.control(kThink);
        if (!thinking_option(variables_).value_or(true)) out_.control(kThinkEnd);
      }
    }
    return out_.take();
  }

 private:
  void begin(std::string_view marker, std::string name) {
    out_.control(marker);
    out_.text(std::move(name));
    out_.control(kMiddle);
  }

  Result<void> declare_tools() {
    const OrderedJson& tools = chat_member(variables_, "tools");
    if (!is_truthy(tools)) return {};
    if (!tools.is_array()) return fail(Code::kInvalidArgument, "'tools' must be a list");
    std::optional<std::string> text;
    if (options_.typescript_tools) text = tools_to_typescript(deep_sorted(tools));
    if (!text) {
      BATON_TRY_ASSIGN(text, python_json(tools, {.compact = true, .sort_keys = options_.typescript_tools}));
    }
    begin(kSystem, "tool_declare");
    out_.text(std::move(*text));
    out_.control(kEnd);
    return {};
  }

  size_t first_kept_reasoning(const std::vector<ChatMessage>& messages) const {
    const OrderedJson& wanted = chat_member(variables_, "preserve_thinking");
    if (wanted.is_boolean() ? wanted.get<bool>() : options_.preserves_thinking) return 0;
    if (options_.opens_think && !thinking_option(variables_).value_or(true)) return messages.size();
    for (size_t i = messages.size(); i-- > 0;) {
      if (messages[i].role == "assistant" && !is_truthy(chat_member(*messages[i].json, "tool_calls"))) return i + 1;
    }
    return 0;
  }

  Result<void> write_message(const ChatMessage& message, bool keeps_reasoning, bool left_open) {
    const OrderedJson& json = *message.json;
    BATON_TRY_ASSIGN(std::string name, chat_string(json, "name"));
    if (name.empty()) name = message.role;
    begin(message.role == "user" ? kUser : message.role == "assistant" ? kAssistant : kSystem, std::move(name));
    if (message.role == "tool") {
      BATON_TRY_ASSIGN(const std::string id, chat_string(json, "tool_call_id"));
      out_.text(fmt::format("## Return of {}\n", id));
    }
    if (message.role == "assistant" && options_.reasons) {
      BATON_TRY_ASSIGN(std::string reasoning, reasoning_text(json));
      out_.control(kThink);
      if (keeps_reasoning || left_open) out_.text(std::move(reasoning));
      out_.control(kThinkEnd);
    }
    BATON_TRY_ASSIGN(auto parts, content_parts(json));
    for (std::string& part : parts) out_.text(std::move(part));
    if (message.role == "assistant") BATON_TRY(write_calls(json));
    if (!left_open) out_.control(kEnd);
    return {};
  }

  // A call without an id gets its place among all calls of the conversation.
  Result<void> write_calls(const OrderedJson& json) {
    BATON_TRY_ASSIGN(const auto calls, tool_calls_of(json));
    if (calls.empty()) return {};
    out_.control("<|tool_calls_section_begin|>");
    for (const ToolCall& call : calls) {
      BATON_TRY_ASSIGN(std::string arguments, arguments_text(call));
      out_.control("<|tool_call_begin|>");
      out_.text(call.id.value_or(fmt::format("functions.{}:{}", call.name, calls_)));
      out_.control("<|tool_call_argument_begin|>");
      out_.text(std::move(arguments));
      out_.control("<|tool_call_end|>");
      ++calls_;
    }
    out_.control("<|tool_calls_section_end|>");
    return {};
  }

  const KimiK2Options& options_;
  const OrderedJson& variables_;
  bool continues_;
  int calls_ = 0;
  SegmentWriter out_{SegmentWriter::Texts::kJoined};
};

class KimiK2Format final : public ChatFormat {
 public:
  explicit KimiK2Format(const KimiK2Options& options) : options_(options) {}
  std::string_view name() const override { return options_.name; }
  Result<std::vector<ChatSegment>> render(const ChatRequest& request) const override {
    return Encoder(options_, request).run();
  }

 private:
  KimiK2Options options_;
};

}  // namespace

std::unique_ptr<ChatFormat> make_kimi_k2_format(const KimiK2Options& options) {
  return std::make_unique<KimiK2Format>(options);
}

}  // namespace baton::text
