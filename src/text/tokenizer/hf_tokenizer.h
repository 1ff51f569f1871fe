// A tokenizer from the text of tokenizer.json, and of tokenizer_config.json where there is one ("" if not).
#pragma once

#include <memory>
#include <string_view>

#include "text/tokenizer.h"

namespace baton::text {

Result<std::unique_ptr<Tokenizer>> make_hf_tokenizer(std::string_view tokenizer_json, std::string_view config_json);

}  // namespace baton::text
