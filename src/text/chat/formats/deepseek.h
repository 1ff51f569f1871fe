// DeepSeek's chat formats for folders that carry no template: V3 and R1, and V3.2, which is published as a program
// (encoding_dsv32.py).
#pragma once

#include <memory>

#include "text/chat_format.h"

namespace baton::text {

// R1 differs in what its generation prompt opens: <think> and a newline, unless thinking is switched off.
std::unique_ptr<ChatFormat> make_deepseek_v3_format(bool is_r1);
// Thinks where thinking or enable_thinking is true. A conversation always ends with the assistant's turn.
std::unique_ptr<ChatFormat> make_deepseek_v32_format();

}  // namespace baton::text
