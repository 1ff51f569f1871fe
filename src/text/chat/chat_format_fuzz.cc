// Any JSON as the variables of a chat, through every native format: a rendering or an error, and control segments that
// are markers only.
#include <cstdint>
#include <string_view>

#include "base/json_depth.h"
#include "text/chat_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::text;
  static constexpr const char* kNames[] = {"kimi_k3",  "kimi_k2",     "kimi_k2_thinking", "kimi_k25",
                                           "kimi_k27", "deepseek_v3", "deepseek_r1",      "deepseek_v32"};
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (baton::json_nests_deeper_than(input, 128)) return 0;
  const auto variables = nlohmann::ordered_json::parse(input, nullptr, false);
  if (variables.is_discarded()) return 0;
  for (const char* name : kNames) {
    const auto format = make_native_chat_format(name);
    for (const bool continues : {false, true}) {
      const auto made = (*format)->render({.variables = variables, .continue_final_message = continues});
      if (!made) {
        if (made.error().message().empty()) __builtin_trap();
        continue;
      }
      for (const ChatSegment& segment : *made) {
        if (segment.text.empty() || (segment.is_control && segment.text.size() > 40)) __builtin_trap();
      }
    }
  }
  return 0;
}
