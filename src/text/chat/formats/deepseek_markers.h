// The markers that DeepSeek's formats share.
#pragma once

#include <string_view>

namespace baton::text::deepseek {

inline constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>", kEnd = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kUser = "<｜User｜>", kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";

// What follows the reasoning that an old answer may still hold.
inline std::string_view after_thinking(std::string_view content) {
  const size_t at = content.rfind(kThinkEnd);
  return at == std::string_view::npos ? content : content.substr(at + kThinkEnd.size());
}

}  // namespace baton::text::deepseek
