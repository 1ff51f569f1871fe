// A tokenizer from SentencePiece's own model file, encoded by libsentencepiece.
#pragma once

#include <memory>
#include <string_view>

#include "text/tokenizer.h"

namespace baton::text {

// `model`: the bytes of tokenizer.model. `config_json`: tokenizer_config.json, "" if there is none.
Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(std::string_view model, std::string_view config_json);

}  // namespace baton::text
