// The tokenizer of Kimi's checkpoints: tiktoken ranks under Kimi's pattern (kimi_split.h), and 256 special ids behind
// the ranks, which tokenizer_config.json names in part.
#pragma once

#include <memory>
#include <string_view>

#include "text/tokenizer.h"

namespace baton::text {

// `ranks`: the text of tiktoken.model. `config_json`: tokenizer_config.json, "" if there is none.
//
// With parse_special_tokens the names of tokenizer_config.json are found first, as servers have it through
// transformers, then in each cut all 256. Without, nothing is found: no text can become one of these ids, also not
// those that the configuration adds but does not call special (<|open|>, <think>).
Result<std::unique_ptr<Tokenizer>> make_kimi_tokenizer(std::string_view ranks, std::string_view config_json);

}  // namespace baton::text
