// A byte-level BPE vocabulary small enough for a tiny checkpoint: it can spell any text, and merges a few common pairs.
//
// Ids: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|>, then the 256 bytes, then merged tokens while there is room, then
// <|reserved_N|> up to the vocabulary's size. Splitting is GPT-2's; the chat template is ChatML.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/gguf_writer.h"

namespace baton::weights {

struct SmallTokenizer {
  static constexpr int kSpecialTokens = 3;
  static constexpr int kVocabMin = kSpecialTokens + 256;
  static constexpr int kBosId = 1;
  static constexpr int kEosId = 2;

  std::vector<std::string> tokens;  // [vocab], in GPT-2's spelling of bytes
  std::vector<std::string> merges;  // "left right", by rank
  std::vector<bool> special;        // [vocab]
  std::string chat_template;
};

// kInvalidArgument below kVocabMin.
Result<SmallTokenizer> make_small_tokenizer(int vocab);

// The contents of tokenizer.json and tokenizer_config.json.
nlohmann::ordered_json tokenizer_json(const SmallTokenizer& tokenizer);
nlohmann::ordered_json tokenizer_config_json(const SmallTokenizer& tokenizer);
// The keys tokenizer.ggml.* and tokenizer.chat_template.
void set_tokenizer_metadata(const SmallTokenizer& tokenizer, GgufWriter& writer);

}  // namespace baton::weights
