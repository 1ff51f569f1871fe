// The pre-tokenizers that GGUF files name (tokenizer.ggml.pre), as the patterns of the tokenizer.json files that the
// named models were published with.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton::text {

struct GgufPre {
  std::vector<std::string_view> patterns;  // applied one after the other, matches isolated
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says
};

// kUnimplemented, with the list of known names, for any other.
Result<GgufPre> gguf_pre(std::string_view name);

}  // namespace baton::text
