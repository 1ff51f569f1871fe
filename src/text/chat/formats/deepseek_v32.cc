#include "text/chat/formats/chat_json.h"
#include "text/chat/formats/deepseek.h"
#include "text/chat/formats/deepseek_markers.h"
#include "text/chat/formats/kimi_k3_messages.h"
#include "text/chat/formats/python_json.h"
#include "text/chat/formats/segment_writer.h"

namespace baton::text {
namespace {

using namespace deepseek;

constexpr std::string_view kDsml = "｜DSML｜";

// One rendering.
class Encoder {
 public:
  explicit Encoder(const ChatRequest& request)
      : variables_(request.variables), continues_(request.continue_final_message) {}

  Result<std::vector<ChatSegment>> run() {
    thinking_ = thinking_option(variables_).value_or(false);
    BATON_TRY_ASSIGN(messages_, read_messages(variables_));
    if (continues_ && (messages_.empty() || messages_.back().role != "assistant")) {
      return fail(Code::kInvalidArgument, "continue_final_message needs a last message of an assistant");
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role == "user" || messages_[i].role == "developer") question_ = static_cast<ptrdiff_t>(i);
    }
    out_.control(kBegin);
    if (const OrderedJson& tools = chat_member(variables_, "tools"); is_truthy(tools)) {
      out_.text("\n\n");
      BATON_TRY(write_tools(tools));
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      auto written = write_message(i);
      if (!written) return fail(written.error().with_context(fmt::format("messages.{}", i)));
    }
    return out_.take();
  }

 private:
  bool is_behind_question(size_t index) const { return static_cast<ptrdiff_t>(index) > question_; }
  void open_thinking(bool wanted) { out_.control(wanted && thinking_ ? kThink : kThinkEnd); }

  // Text in which "$" stands for the marker of tool markup.
  void markup(std::string_view text) {
    for (size_t at; (at = text.find('$')) != std::string_view::npos; text.remove_prefix(at + 1)) {
      out_.text(std::string(text.substr(0, at)));
      out_.control(kDsml);
    }
    out_.text(std::string(text));
  }

  Result<void> write_message(size_t index) {
    const ChatMessage& message = messages_[index];
    BATON_TRY_ASSIGN(std::string content, content_text(*message.json));
    if (message.role == "assistant") return write_assistant(index, content);
    if (message.role == "tool") return write_result(index, std::move(content));
    const bool is_developer = message.role == "developer";
    if (!is_developer && message.role != "system" && message.role != "user") {
      return fail(Code::kInvalidArgument, "role '{}' is not one of system, developer, user, assistant, tool",
                  message.role);
    }
    if (message.role != "system") out_.control(kUser);
    if (!is_developer) out_.text(content);
    const OrderedJson& tools = chat_member(*message.json, "tools");
    if (message.role != "user" && is_truthy(tools)) {
      out_.text("\n\n");
      BATON_TRY(write_tools(tools));
    }
    if (is_developer) out_.text("\n\n# The user's message is: " + content);
    if (message.role == "system") return {};
    out_.control(kAssistant);
    open_thinking(static_cast<ptrdiff_t>(index) == question_);
    return {};
  }

  Result<void> write_tools(const OrderedJson& tools) {
    if (!tools.is_array()) return fail(Code::kInvalidArgument, "'tools' must be a list");
    out_.text(
        "## Tools\nYou have access to a set of tools you can use to answer the user's question.\n"
        "You can invoke functions by writing a \"<");
    out_.control(kDsml);
    out_.text("function_calls>\" block like the following as part of your reply to the user:\n<");
    out_.control(kDsml);
    write_example("$FUNCTION_NAME", true);
    write_example("$FUNCTION_NAME2", false);
    out_.text("</");
    out_.control(kDsml);
    markup(
        "function_calls>\nString and scalar parameters should be specified as is without any escaping or quotes, while "
        "lists and objects should use JSON format. The \"string\" attribute should be set to \"true\" for string type "
        "parameters and \"false\" for other types (numbers, booleans, arrays, objects).\nIf the thinking_mode is "
        "enabled, then after function results you should strongly consider outputting a thinking block. Here is an "
        "example:\n<$function_calls>\n...\n</$function_calls>\n<function_results>\n...\n</function_results>\n");
    out_.control(kThink);
    out_.text("...thinking about results");
    out_.control(kThinkEnd);
    out_.text("\nHere are the functions available in JSONSchema format:\n<functions>\n");
    for (size_t i = 0; i < tools.size(); ++i) {
      const OrderedJson& function = chat_member(tools[i], "function");
      BATON_TRY_ASSIGN(const std::string json, python_json(function.is_null() ? tools[i] : function, {}));
      out_.text((i > 0 ? "\n" : "") + json);
    }
    out_.text("\n</functions>\n");
    return {};
  }

  void write_example(std::string_view function, bool is_first) {
    if (is_first) out_.text("function_calls>\n<");
    if (!is_first) out_.text("<");
    out_.control(kDsml);
    out_.text(fmt::format("invoke name=\"{}\">\n", function));
    if (is_first) {
      out_.text("<");
      out_.control(kDsml);
      out_.text("parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</");
      out_.control(kDsml);
      out_.text("parameter>\n");
    }
    out_.text("...\n</");
    out_.control(kDsml);
    out_.text("invoke>\n");
  }

  Result<void> write_assistant(size_t index, std::string_view content) {
    const OrderedJson& json = *messages_[index].json;
    if (thinking_ && is_behind_question(index)) {
      BATON_TRY_ASSIGN(std::string reasoning, reasoning_text(json));
      out_.text(std::move(reasoning));
      out_.control(kThinkEnd);
    }
    out_.text(std::string(content));
    BATON_TRY_ASSIGN(const auto calls, tool_calls_of(json));
    if (!calls.empty()) BATON_TRY(write_calls(calls));
    if (!continues_ || index + 1 < messages_.size()) out_.control(kEnd);
    return {};
  }

  Result<void> write_calls(const std::vector<ToolCall>& calls) {
    markup("\n\n<$function_calls>\n");
    for (const ToolCall& call : calls) {
      BATON_TRY_ASSIGN(const KimiK3Arguments arguments, read_arguments(call));
      if (arguments.raw) {
        return fail(Code::kInvalidArgument, "the arguments of the call of '{}' must be a JSON object", call.name);
      }
      markup("<$");
      out_.text(fmt::format("invoke name=\"{}\">\n", call.name));
      bool first = true;
      for (const auto& [key, value] : arguments.members.items()) {
        BATON_TRY_ASSIGN(std::string json, python_json(value, {}));
        if (!std::exchange(first, false)) out_.text("\n");
        markup("<$");
        out_.text(fmt::format("parameter name=\"{}\" string=\"{}\">{}", key, value.is_string() ? "true" : "false",
                              value.is_string() ? value.get<std::string>() : json));
        markup("</$parameter>");
      }
      markup("\n</$invoke>\n");
    }
    markup("</$function_calls>");
    return {};
  }

  // The results of one turn stand together, and the answer goes on behind the last.
  Result<void> write_result(size_t index, std::string content) {
    size_t caller = index;
    while (caller > 0 && messages_[caller].role == "tool") --caller;
    const size_t order = index - caller;
    BATON_TRY_ASSIGN(const auto calls, tool_calls_of(*messages_[caller].json));
    if (messages_[caller].role != "assistant" || calls.size() < order) {
      return fail(Code::kInvalidArgument, "a tool message without a call in the assistant message before it");
    }
    if (order == 1) out_.text("\n\n<function_results>");
    out_.text(fmt::format("\n<result>{}</result>", content));
    if (order < calls.size()) return {};
    out_.text("\n</function_results>\n\n");
    open_thinking(static_cast<ptrdiff_t>(index) >= question_);
    return {};
  }

  const OrderedJson& variables_;
  bool continues_;
  bool thinking_ = false;
  std::vector<ChatMessage> messages_;
  ptrdiff_t question_ = -1;  // the last message of a user
  SegmentWriter out_{SegmentWriter::Texts::kJoined};
};

class DeepSeekV32Format final : public ChatFormat {
 public:
  std::string_view name() const override { return "deepseek_v32"; }
  Result<std::vector<ChatSegment>> render(const ChatRequest& request) const override { return Encoder(request).run(); }
};

}  // namespace

std::unique_ptr<ChatFormat> make_deepseek_v32_format() { return std::make_unique<DeepSeekV32Format>(); }

}  // namespace baton::text
