#include "text/chat/formats/chat_json.h"
#include "text/chat/formats/deepseek.h"
#include "text/chat/formats/deepseek_markers.h"
#include "text/chat/formats/segment_writer.h"

namespace baton::text {
namespace {

using namespace deepseek;

// One rendering.
class Encoder {
 public:
  Encoder(bool is_r1, const ChatRequest& request)
      : is_r1_(is_r1), variables_(request.variables), continues_(request.continue_final_message) {}

  Result<std::vector<ChatSegment>> run() {
    BATON_TRY_ASSIGN(const auto messages, read_messages(variables_));
    if (continues_ && (messages.empty() || messages.back().role == "tool" || messages.back().role == "system")) {
      return fail(Code::kInvalidArgument, "continue_final_message needs a last message of a user or an assistant");
    }
    out_.control(kBegin);
    BATON_TRY(write_system(messages));
    for (size_t i = 0; i < messages.size(); ++i) {
      auto written = write_message(messages[i], continues_ && i + 1 == messages.size());
      if (!written) return fail(written.error().with_context(fmt::format("messages.{}", i)));
    }
    if (in_outputs_) out_.control("<｜tool▁outputs▁end｜>");
    if (!continues_ && !in_outputs_ && is_truthy(chat_member(variables_, "add_generation_prompt"))) open_answer();
    return out_.take();
  }

 private:
  // All system messages stand first.
  Result<void> write_system(const std::vector<ChatMessage>& messages) {
    std::string text;
    bool first = true;
    for (const ChatMessage& message : messages) {
      if (message.role != "system" && message.role != "developer") continue;
      BATON_TRY_ASSIGN(const std::string content, content_text(*message.json));
      if (!std::exchange(first, false)) text += "\n\n";
      text += content;
    }
    out_.text(std::move(text));
    return {};
  }

  void open_answer() {
    out_.control(kAssistant);
    const auto thinking = thinking_option(variables_);
    if (!is_r1_ && !thinking.value_or(false)) return;
    out_.control(kThink);
    out_.text("\n");
    if (thinking.value_or(true)) return;
    out_.text("\n");
    out_.control(kThinkEnd);
    out_.text("\n\n");
  }

  Result<void> write_message(const ChatMessage& message, bool left_open) {
    if (message.role == "system" || message.role == "developer") return {};
    BATON_TRY_ASSIGN(std::string content, content_text(*message.json));
    if (message.role == "tool") {
      if (!in_outputs_) out_.control("<｜tool▁outputs▁begin｜>");
      if (in_outputs_) out_.text("\n");
      in_outputs_ = true;
      out_.control("<｜tool▁output▁begin｜>");
      out_.text(std::move(content));
      out_.control("<｜tool▁output▁end｜>");
      return {};
    }
    const bool after_outputs = std::exchange(in_outputs_, false);
    if (after_outputs) out_.control("<｜tool▁outputs▁end｜>");
    if (message.role == "user") {
      out_.control(kUser);
      out_.text(std::move(content));
      return {};
    }
    if (message.role != "assistant") {
      return fail(Code::kInvalidArgument, "role '{}' is not one of system, developer, user, assistant, tool",
                  message.role);
    }
    BATON_TRY_ASSIGN(const auto calls, tool_calls_of(*message.json));
    // An answer to tools goes on in the turn that called them.
    if (!after_outputs) out_.control(kAssistant);
    out_.text(std::string(after_thinking(content)));
    if (!calls.empty()) BATON_TRY(write_calls(calls));
    if (!left_open) out_.control(kEnd);
    return {};
  }

  Result<void> write_calls(const std::vector<ToolCall>& calls) {
    out_.control("<｜tool▁calls▁begin｜>");
    for (size_t i = 0; i < calls.size(); ++i) {
      BATON_TRY_ASSIGN(const std::string arguments, arguments_text(calls[i]));
      if (i > 0) out_.text("\n");
      out_.control("<｜tool▁call▁begin｜>");
      out_.text("function");
      out_.control("<｜tool▁sep｜>");
      out_.text(fmt::format("{}\n```json\n{}\n```", calls[i].name, arguments));
      out_.control("<｜tool▁call▁end｜>");
    }
    out_.control("<｜tool▁calls▁end｜>");
    return {};
  }

  bool is_r1_;
  const OrderedJson& variables_;
  bool continues_;
  bool in_outputs_ = false;
  SegmentWriter out_{SegmentWriter::Texts::kJoined};
};

class DeepSeekV3Format final : public ChatFormat {
 public:
  explicit DeepSeekV3Format(bool is_r1) : is_r1_(is_r1) {}
  std::string_view name() const override { return is_r1_ ? "deepseek_r1" : "deepseek_v3"; }
  Result<std::vector<ChatSegment>> render(const ChatRequest& request) const override {
    return Encoder(is_r1_, request).run();
  }

 private:
  bool is_r1_;
};

}  // namespace

std::unique_ptr<ChatFormat> make_deepseek_v3_format(bool is_r1) { return std::make_unique<DeepSeekV3Format>(is_r1); }

}  // namespace baton::text
