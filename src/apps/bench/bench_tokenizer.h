// The tokenizer that makes a load's prompts, found as a server finds its model.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace baton::apps {

// `name`: a folder, a GGUF file or an id in the cache; a folder needs no weights. `mode` as --tokenizer-mode.
Result<std::unique_ptr<text::Tokenizer>> load_bench_tokenizer(const std::string& name, const std::string& mode);

}  // namespace baton::apps
