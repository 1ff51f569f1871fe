// Any bytes as a template, rendered over one fixed conversation under narrow bounds.
#include <cstddef>
#include <cstdint>

#include "text/chat/render_options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto kVariables = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "h\u00e9llo <x>"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "n": 3, "text": "a b  c"})");
  baton::text::RenderOptions options;
  options.limits.steps_max = 20'000;
  options.limits.bytes_made_max = int64_t{8} << 20;
  options.limits.text_bytes_max = size_t{1} << 20;
  options.now = 1'700'000'000;
  auto parsed = baton::text::parse_chat_template({reinterpret_cast<const char*>(data), size}, options);
  if (parsed) (void)(*parsed)->render(kVariables);
  return 0;
}
