// A conversation as the text that a model continues, for every kind of checkpoint: those that carry a Jinja template
// and those whose format is a program (Kimi K3), written here in native code.
//
// A native format gives segments: control segments are the markers of the format, all other text is what users, tools
// and models wrote. Only control segments are tokenised with special tokens, so no text can become a marker. A Jinja
// template gives one string in which markers and text can't be told apart, as everywhere.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace baton::text {

struct ChatSegment {
  std::string text;  // not empty
  bool is_control = false;
};

struct ChatRequest {
  // By the names that chat templates use: messages (OpenAI's shape), tools, documents, add_generation_prompt,
  // bos_token, eos_token, and chat_template_kwargs. Native formats also read, where the model knows them: thinking or
  // enable_thinking, thinking_effort or reasoning_effort, preserve_thinking, tool_choice, response_format.
  nlohmann::ordered_json variables;
  // The last message is left open, for the model to go on with; then add_generation_prompt must be false.
  bool continue_final_message = false;
};

// Immutable; any thread.
class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  // "jinja", "kimi_k3", ...
  virtual std::string_view name() const = 0;
  // kInvalidArgument for a conversation that the format can't hold, with what to change.
  virtual Result<std::vector<ChatSegment>> render(const ChatRequest& request) const = 0;
};

// The template's text, rendered as ChatTemplate does. Where it asks for tools_ts_str (Kimi K2.5, K2.6) that is made of
// the tools as the checkpoint's own code does.
Result<std::unique_ptr<ChatFormat>> make_jinja_chat_format(std::string_view source);

// "kimi_k3", "kimi_k2", "kimi_k2_thinking", "kimi_k25", "kimi_k27", "deepseek_v3", "deepseek_r1", "deepseek_v32".
Result<std::unique_ptr<ChatFormat>> make_native_chat_format(std::string_view name);

// The native format of a checkpoint, "" if there is none: of kimi_k3 always, of others where they carry no template or
// the tokenizer mode names it.
struct ChatFormatHints {
  std::string model_type;      // config.json's; of a nested text_config as well as of the whole
  std::string tokenizer_mode;  // --tokenizer-mode
  std::string model_name;      // the folder's name: tells R1 from V3
  bool has_template = false;
};
std::string native_chat_format_name(const ChatFormatHints& hints, const Tokenizer& tokenizer);

std::string join_segments(const std::vector<ChatSegment>& segments);
// Each segment alone, as the checkpoints' own code does it. With `add_special_tokens` the tokenizer's BOS and EOS stand
// around them, which no format but a template without them needs.
std::vector<TokenId> encode_segments(const Tokenizer& tokenizer, const std::vector<ChatSegment>& segments,
                                     bool add_special_tokens = false);

struct EncodedChat {
  std::string text;
  std::vector<TokenId> ids;
};
// Renders and tokenises. `text_bytes_max`: a longer text is kOutOfRange before it is tokenised.
Result<EncodedChat> encode_chat(const ChatFormat& format, const Tokenizer& tokenizer, const ChatRequest& request,
                                size_t text_bytes_max);

}  // namespace baton::text
