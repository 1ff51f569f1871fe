// Everything `baton serve` reads of a checkpoint besides its weights: tokenizer, chat template, end tokens, defaults.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace baton::apps {

struct ModelFiles {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatFormat> chat_format;  // null: the checkpoint has none
  std::vector<TokenId> eos_token_ids;
  nlohmann::json generation_config = nlohmann::json::object();
};

// `chat_template_file`: takes the place of the checkpoint's own template or format when not empty.
// `tokenizer_mode`: "kimi_k3" for its tiktoken.model and format, "deepseek_v32" for its format, whatever else the
// folder holds.
Result<ModelFiles> load_model_files(const weights::Checkpoint& checkpoint, const std::string& chat_template_file,
                                    const std::string& tokenizer_mode = "auto");

}  // namespace baton::apps
