// The chat formats of Kimi K2 Instruct, K2 Thinking, K2.5 / K2.6 and K2.7 for folders that carry no template.
//
//   <|im_user|>user<|im_middle|>TEXT<|im_end|>
//
// A tool's answer stands in <|im_system|>NAME<|im_middle|> under "## Return of ID". Reasoning of assistant messages is
// kept from the last one that called no tool on; before, <think></think> stands alone.
#pragma once

#include <memory>

#include "text/chat_format.h"

namespace baton::text {

struct KimiK2Options {
  std::string_view name;
  bool reasons = false;             // assistant messages hold <think>...</think>
  bool opens_think = false;         // the generation prompt ends with <think>, or <think></think> with thinking off
  bool typescript_tools = false;    // else compact JSON
  bool preserves_thinking = false;  // of all messages, unless preserve_thinking says otherwise
  bool default_system = true;
};
std::unique_ptr<ChatFormat> make_kimi_k2_format(const KimiK2Options& options);

}  // namespace baton::text
