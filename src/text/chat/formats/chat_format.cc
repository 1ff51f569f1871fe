// Which format is whose, and from segments to ids.
#include "text/chat_format.h"

#include <algorithm>

#include "text/chat/formats/deepseek.h"
#include "text/chat/formats/kimi_k2.h"
#include "text/chat/formats/kimi_k3.h"

namespace baton::text {
namespace {

constexpr KimiK2Options kKimiK2[] = {
    {.name = "kimi_k2"},
    {.name = "kimi_k2_thinking", .reasons = true},
    {.name = "kimi_k25", .reasons = true, .opens_think = true, .typescript_tools = true},
    {.name = "kimi_k27",
     .reasons = true,
     .opens_think = true,
     .typescript_tools = true,
     .preserves_thinking = true,
     .default_system = false},
};

bool contains_ignoring_case(std::string_view text, std::string_view lower_case_word) {
  return std::search(text.begin(), text.end(), lower_case_word.begin(), lower_case_word.end(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
         }) != text.end();
}

}  // namespace

Result<std::unique_ptr<ChatFormat>> make_native_chat_format(std::string_view name) {
  for (const KimiK2Options& options : kKimiK2) {
    if (options.name == name) return make_kimi_k2_format(options);
  }
  if (name == "kimi_k3") return make_kimi_k3_format();
  if (name == "deepseek_v3" || name == "deepseek_r1") return make_deepseek_v3_format(name == "deepseek_r1");
  if (name == "deepseek_v32") return make_deepseek_v32_format();
  return fail(Code::kNotFound, "there is no native chat format '{}'", name);
}

std::string native_chat_format_name(const ChatFormatHints& hints, const Tokenizer& tokenizer) {
  const auto has = [&](const char* token) { return tokenizer.token_id(token).has_value(); };
  // K3's own markers, since the model type of its text part is that of Kimi-Linear.
  const bool has_k3_tokens = has("<|open|>") && has("<|close|>") && has("<|sep|>") && has("<|end_of_msg|>");
  if (hints.tokenizer_mode == "kimi_k3" || hints.model_type == "kimi_k3" || has_k3_tokens) return "kimi_k3";
  if (hints.tokenizer_mode == "deepseek_v32") return "deepseek_v32";
  if (hints.has_template) return "";
  if (hints.model_type == "kimi_k25") return contains_ignoring_case(hints.model_name, "k2.7") ? "kimi_k27" : "kimi_k25";
  if (hints.model_type == "kimi_k2") return has("<think>") ? "kimi_k2_thinking" : "kimi_k2";
  if (hints.model_type == "deepseek_v32") return "deepseek_v32";
  if (hints.model_type == "deepseek_v3") {
    return contains_ignoring_case(hints.model_name, "r1") ? "deepseek_r1" : "deepseek_v3";
  }
  return "";
}

std::string join_segments(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

std::vector<TokenId> encode_segments(const Tokenizer& tokenizer, const std::vector<ChatSegment>& segments,
                                     bool add_special_tokens) {
  if (add_special_tokens && segments.size() == 1 && segments[0].is_control) {
    return tokenizer.encode(segments[0].text, {.add_special_tokens = true});
  }
  std::vector<TokenId> ids;
  if (add_special_tokens) ids = tokenizer.encode("", {.add_special_tokens = true});
  for (const ChatSegment& segment : segments) {
    const auto part = tokenizer.encode(segment.text, {.add_special_tokens = false,
                                                      .parse_special_tokens = segment.is_control,
                                                      .parse_added_tokens = segment.is_control});
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

Result<EncodedChat> encode_chat(const ChatFormat& format, const Tokenizer& tokenizer, const ChatRequest& request,
                                size_t text_bytes_max) {
  BATON_TRY_ASSIGN(const auto segments, format.render(request));
  EncodedChat chat{join_segments(segments), {}};
  if (chat.text.size() > text_bytes_max) {
    return fail(Code::kOutOfRange, "the chat has {} bytes: at most {} are taken", chat.text.size(), text_bytes_max);
  }
  chat.ids = encode_segments(tokenizer, segments);
  return chat;
}

}  // namespace baton::text
