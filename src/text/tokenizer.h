// Text to token ids and back, for every tokenizer the supported checkpoints carry. Immutable after load; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"

namespace baton::text {

struct EncodeOptions {
  bool add_special_tokens = true;    // BOS/EOS as the tokenizer's own configuration says
  bool parse_special_tokens = true;  // "<|im_end|>" in the text becomes that token (as transformers does)
  bool parse_added_tokens = true;    // so do added tokens that are not special; false: no text becomes an added token
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Invalid UTF-8 is encoded byte by byte where the vocabulary can, else as U+FFFD.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;
  // The raw bytes of a token, which may be part of a UTF-8 character. Empty for ids out of range.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  // The token's own spelling ("Ġthe", "<|im_end|>"), as token_strs and logprobs show it.
  virtual std::string_view token_spelling(TokenId id) const = 0;
  virtual std::optional<TokenId> token_id(std::string_view spelling) const = 0;
  virtual int vocab_size() const = 0;  // one past the largest id
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::vector<TokenId> eos_ids() const = 0;
  // Bytes stripped from the start of a whole decoded text (SentencePiece's dummy prefix space): usually "".
  virtual std::string_view decode_prefix() const { return {}; }
};

// The whole text of `ids`; invalid UTF-8 becomes U+FFFD as transformers does.
std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special_tokens);

// What a GGUF file says of its tokenizer (tokenizer.ggml.*), filled by whoever reads the file.
struct GgufTokenizerData {
  std::string model;  // "gpt2", "llama"
  std::string pre;    // "smollm", "llama-bpe", "qwen2", "deepseek-llm", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> token_types;
  std::vector<std::string> merges;
  std::optional<TokenId> bos_id, eos_id, eot_id, unk_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string chat_template;
};
Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufTokenizerData& data);
// A folder with, in the order of preference, tokenizer.json, tiktoken.model (Kimi) or tokenizer.model (SentencePiece),
// each beside tokenizer_config.json.
enum class TokenizerKind { kAny, kKimiTiktoken };
Result<std::unique_ptr<Tokenizer>> load_tokenizer_folder(const std::string& folder,
                                                         TokenizerKind kind = TokenizerKind::kAny);

}  // namespace baton::text
