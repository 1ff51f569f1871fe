// Jinja chat templates, rendered as transformers renders them (trim_blocks, lstrip_blocks, raise_exception, tojson,
// strftime_now, loop controls; a sandbox: no attribute that starts with an underscore).
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace baton::text {

class ChatTemplate {
 public:
  static constexpr size_t kVariablesMax = 1024;
  virtual ~ChatTemplate() = default;
  // `variables`: messages, tools, documents, add_generation_prompt, bos_token, eos_token and chat_template_kwargs;
  // at most kVariablesMax.
  // Member order of JSON objects is kept. kInvalidArgument carries raise_exception's words or the template's error.
  // Bounded in steps and output size, so that no template can hang or exhaust the process. Any thread.
  virtual Result<std::string> render(const nlohmann::ordered_json& variables) const = 0;
};
// kInvalidArgument with line and reason for a template that does not parse.
Result<std::unique_ptr<ChatTemplate>> parse_chat_template(std::string_view source);

}  // namespace baton::text
