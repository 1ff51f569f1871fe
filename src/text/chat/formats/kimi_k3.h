// Kimi K3's chat format ("XTML"), which the checkpoint defines by a program (encoding_k3.py) and not by a template.
//
//   <|open|>message role="user"<|sep|>TEXT<|close|>message<|sep|><|end_of_msg|>
//
// Order: tool declarations, thinking effort, the messages, tool choice, response format, the open assistant message.
// Which bytes are one segment matters, since each is tokenised alone: of an attribute the name, '="', the value and
// '"'.
#pragma once

#include <memory>

#include "text/chat_format.h"

namespace baton::text {

std::unique_ptr<ChatFormat> make_kimi_k3_format();

}  // namespace baton::text
