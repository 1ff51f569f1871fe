#include "text/chat/formats/kimi_k3.h"

#include <algorithm>

#include "text/chat/formats/kimi_k3_messages.h"
#include "text/chat/formats/python_json.h"
#include "text/chat/formats/segment_writer.h"

namespace baton::text {
namespace {

constexpr std::string_view kOpen = "<|open|>", kClose = "<|close|>", kSep = "<|sep|>", kEnd = "<|end_of_msg|>";
constexpr std::string_view kDeclared = "# Tools\nHere are the available tools, described in JSONSchema.\n\n";
constexpr std::string_view kDeclaredLater =
    "## New Tools Available\n"
    "The system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n";
constexpr std::string_view kEffort =
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`.";
constexpr std::string_view kToolChoice =
    "The system is invoked with `tool_choice={}`.\nYou MUST {} in the next message.";
constexpr std::string_view kResponseFormat =
    "The system is invoked with `response_format={}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.";
constexpr std::string_view kSchema = "\nThe JSON data must match the following schema:\n";

struct Attribute {
  std::string_view key;
  std::string value;
};

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string_view type_of(const OrderedJson& value) {
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  if (value.is_number()) return "number";
  if (value.is_string()) return "string";
  return value.is_object() ? "object" : "array";
}

// One rendering.
class Encoder {
 public:
  Encoder(const ChatRequest& request) : variables_(request.variables), continues_(request.continue_final_message) {}

  Result<std::vector<ChatSegment>> run() {
    thinking_ = thinking_option(variables_).value_or(true);
    if (const OrderedJson& tools = chat_member(variables_, "tools"); is_truthy(tools)) {
      BATON_TRY(declare_tools(tools, kDeclared));
    }
    BATON_TRY(write_effort());
    BATON_TRY(write_messages());
    if (continues_) return out_.take();
    BATON_TRY(write_tool_choice());
    BATON_TRY(write_response_format());
    if (is_truthy(chat_member(variables_, "add_generation_prompt"))) {
      open("message", {{"role", "assistant"}});
      open(thinking_ ? "think" : "response");
    }
    return out_.take();
  }

 private:
  void open(std::string_view tag, const std::vector<Attribute>& attributes = {}) {
    out_.control(kOpen);
    out_.text(std::string(tag));
    for (const Attribute& attribute : attributes) {
      out_.text(fmt::format(" {}", attribute.key));
      out_.text("=\"");
      out_.text(escaped(attribute.value));
      out_.text("\"");
    }
    out_.control(kSep);
  }
  void close(std::string_view tag) {
    out_.control(kClose);
    out_.text(std::string(tag));
    out_.control(kSep);
  }
  void close_message() {
    close("message");
    out_.control(kEnd);
  }
  void write_system(std::string_view type, std::string body) {
    open("message", {{"role", "system"}, {"type", std::string(type)}});
    out_.text(std::move(body));
    close_message();
  }

  Result<void> declare_tools(const OrderedJson& tools, std::string_view words) {
    if (!tools.is_array()) return fail(Code::kInvalidArgument, "'tools' must be a list");
    BATON_TRY_ASSIGN(const std::string json, python_json(tools, {.compact = true, .sort_keys = true}));
    write_system("tool-declare", fmt::format("{}```json\n{}\n```", words, json));
    return {};
  }

  // thinking_effort, else reasoning_effort; "max" unless said. Checked also where thinking is off.
  Result<void> write_effort() {
    BATON_TRY_ASSIGN(std::string effort, chat_string(variables_, "thinking_effort"));
    if (effort.empty()) {
      BATON_TRY_ASSIGN(effort, chat_string(variables_, "reasoning_effort"));
      if (effort == "none") effort.clear();
    }
    if (effort.empty()) effort = "max";
    if (effort != "low" && effort != "high" && effort != "max") {
      return fail(Code::kInvalidArgument, "Kimi K3 supports thinking_effort values: low, high, max; not '{}'", effort);
    }
    if (thinking_) write_system("thinking-effort", fmt::format(fmt::runtime(kEffort), effort));
    return {};
  }

  Result<void> write_messages() {
    BATON_TRY_ASSIGN(const auto messages, read_messages(variables_));
    BATON_TRY_ASSIGN(const auto ordered, order_tool_results(messages));
    if (continues_ && (ordered.empty() || ordered.back().message.role == "tool")) {
      return fail(Code::kInvalidArgument, "continue_final_message needs a last message that is not a tool's");
    }
    for (size_t i = 0; i < ordered.size(); ++i) {
      left_open_ = continues_ && i + 1 == ordered.size();
      auto written = write_message(ordered[i]);
      if (!written) return fail(written.error().with_context(fmt::format("messages.{}", i)));
    }
    return {};
  }

  Result<void> write_message(const KimiK3Message& one) {
    const OrderedJson& json = *one.message.json;
    const std::string& role = one.message.role;
    if (role == "assistant") return write_assistant(json);
    if (role == "tool") return write_tool(one);
    const bool is_system = role == "system" || role == "developer";
    if (is_system && is_truthy(chat_member(json, "tools"))) return declare_tools(json["tools"], kDeclaredLater);
    if (!is_system && role != "user") {
      return fail(Code::kInvalidArgument, "role '{}' is not one of system, developer, user, assistant, tool", role);
    }
    BATON_TRY_ASSIGN(const auto attributes, role_and_name(is_system ? "system" : "user", json));
    open("message", attributes);
    BATON_TRY(write_content(json));
    if (!left_open_) close_message();
    return {};
  }

  static Result<std::vector<Attribute>> role_and_name(std::string role, const OrderedJson& json) {
    std::vector<Attribute> attributes{{"role", std::move(role)}};
    BATON_TRY_ASSIGN(std::string name, chat_string(json, "name"));
    if (!name.empty()) attributes.push_back({"name", std::move(name)});
    return attributes;
  }

  Result<void> write_content(const OrderedJson& json) {
    BATON_TRY_ASSIGN(auto parts, content_parts(json));
    for (std::string& part : parts) out_.text(std::move(part));
    return {};
  }

  Result<void> write_assistant(const OrderedJson& json) {
    BATON_TRY_ASSIGN(calls_, tool_calls_of(json));
    results_ = 0;
    BATON_TRY_ASSIGN(const auto attributes, role_and_name("assistant", json));
    open("message", attributes);
    if (thinking_) {
      BATON_TRY_ASSIGN(std::string reasoning, reasoning_text(json));
      open("think");
      if (reasoning.find_first_not_of(" \t\r\n\f\v") != std::string::npos) out_.text(std::move(reasoning));
      close("think");
    }
    open("response");
    BATON_TRY(write_content(json));
    if (left_open_) {
      if (calls_.empty()) return {};
      return fail(Code::kInvalidArgument, "continue_final_message needs a last message without tool calls");
    }
    close("response");
    if (!calls_.empty()) BATON_TRY(write_calls());
    close_message();
    return {};
  }

  Result<void> write_calls() {
    open("tools");
    for (size_t i = 0; i < calls_.size(); ++i) {
      open("call", {{"tool", calls_[i].name}, {"index", std::to_string(i + 1)}});
      BATON_TRY_ASSIGN(KimiK3Arguments arguments, read_arguments(calls_[i]));
      if (arguments.raw) {
        open("json", {{"type", "object"}});
        out_.text(std::move(*arguments.raw));
        close("json");
      }
      for (const auto& [key, value] : arguments.members.items()) {
        open("argument", {{"key", key}, {"type", std::string(type_of(value))}});
        if (value.is_string()) {
          out_.text(value.get<std::string>());
        } else {
          BATON_TRY_ASSIGN(std::string json, python_json(value, {}));
          out_.text(std::move(json));
        }
        close("argument");
      }
      close("call");
    }
    close("tools");
    return {};
  }

  // Named by the call that it answers; else by itself; else by the call at its place.
  Result<void> write_tool(const KimiK3Message& one) {
    const OrderedJson& json = *one.message.json;
    const size_t place = results_++;
    std::string name = one.tool;
    for (const char* key : {"tool", "name"}) {
      if (!name.empty()) break;
      BATON_TRY_ASSIGN(name, chat_string(json, key));
    }
    if (name.empty() && place < calls_.size()) name = calls_[place].name;
    if (name.empty()) {
      return fail(Code::kInvalidArgument,
                  "a tool message needs a name, or the tool_call_id of a call in the assistant message before it");
    }
    open("message", {{"role", "tool"}, {"tool", std::move(name)}, {"index", std::to_string(place + 1)}});
    BATON_TRY(write_content(json));
    close_message();
    return {};
  }

  Result<void> write_tool_choice() {
    const OrderedJson& choice = chat_member(variables_, "tool_choice");
    if (choice == "required" || choice == "none") {
      write_system("tool-choice", fmt::format(fmt::runtime(kToolChoice), choice.get<std::string>(),
                                              choice == "none" ? "NOT call any tools" : "call tools"));
    }
    return {};
  }

  Result<void> write_response_format() {
    const OrderedJson& format = chat_member(variables_, "response_format");
    const OrderedJson& type = format.is_object() ? chat_member(format, "type") : format;
    if (type == "json_object")
      write_system("response-format", fmt::format(fmt::runtime(kResponseFormat), "json_object"));
    if (type != "json_schema") return {};
    const OrderedJson& wrapper = chat_member(format, "json_schema");
    const OrderedJson* schema = &wrapper;
    for (const char* key : {"json_schema", "schema"}) {  // the latter wins
      if (wrapper.is_object() && wrapper.contains(key)) schema = &wrapper[key];
    }
    BATON_TRY_ASSIGN(const std::string json, python_json(*schema, {.compact = true, .sort_keys = true}));
    write_system(
        "response-format",
        fmt::format("{}{}```json\n{}\n```", fmt::format(fmt::runtime(kResponseFormat), "json_schema"), kSchema, json));
    return {};
  }

  const OrderedJson& variables_;
  bool continues_;
  bool thinking_ = true;
  bool left_open_ = false;
  std::vector<ToolCall> calls_;  // of the last assistant message
  size_t results_ = 0;           // written since then
  SegmentWriter out_{SegmentWriter::Texts::kApart};
};

class KimiK3Format final : public ChatFormat {
 public:
  std::string_view name() const override { return "kimi_k3"; }
  Result<std::vector<ChatSegment>> render(const ChatRequest& request) const override { return Encoder(request).run(); }
};

}  // namespace

std::unique_ptr<ChatFormat> make_kimi_k3_format() { return std::make_unique<KimiK3Format>(); }

}  // namespace baton::text
