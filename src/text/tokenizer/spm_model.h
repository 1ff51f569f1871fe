// The BPE of SentencePiece as GGUF files carry it: scores instead of merges. The adjacent pair whose joined text is
// the token of the highest score is merged until none is left; what is no token at the end goes byte by byte.
// Immutable after make(); any thread. n log n in the word, which is a whole stretch of text here.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/flat_map.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_model.h"

namespace baton::text {

class SpmModel final : public WordModel {
 public:
  // `vocabulary` must outlive the model; tokens with in_model() take part. `scores` by id.
  static Result<std::unique_ptr<SpmModel>> make(const Vocabulary& vocabulary, std::vector<float> scores,
                                                const std::array<TokenId, 256>& byte_tokens,
                                                std::optional<TokenId> unk);
  void encode_word(std::string_view word, std::vector<TokenId>& out) const override;
  bool takes_bytes() const override { return false; }

 private:
  SpmModel() = default;
  void append(std::string_view symbol, std::vector<TokenId>& out) const;

  WordMap words_;
  std::vector<float> scores_;
  std::array<TokenId, 256> byte_tokens_{};
  std::optional<TokenId> unk_;
};

}  // namespace baton::text
