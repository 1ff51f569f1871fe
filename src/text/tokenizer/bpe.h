// The BPE model: one word of text to token ids. Symbols start as bytes (byte-level vocabularies) or as characters,
// and the adjacent pair of lowest rank is merged until none is left; equal ranks go left to right.
// Immutable after make(); any thread.
//
// Cost: a word that the vocabulary holds whole and that merges lead to is one hash lookup. Otherwise short words scan
// their pairs per merge (n^2 on n <= 32), long ones keep a heap: n log n, so 1 MB of one letter takes a fraction of a
// second.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/flat_map.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_model.h"

namespace baton::text {

struct BpeOptions {
  bool byte_symbols = true;    // start from bytes, else from characters
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // characters without a token become <0xXX> tokens (character symbols only)
  bool fuse_unk = false;
  std::optional<TokenId> unk;
};

class Bpe final : public WordModel {
 public:
  struct MergePair {
    TokenId left, right;
  };
  // `vocabulary` must outlive the model. `merges` by rank. kInvalidArgument names a merge whose result is no token.
  static Result<std::unique_ptr<Bpe>> make(const Vocabulary& vocabulary, const std::vector<MergePair>& merges,
                                           BpeOptions options);
  // As tiktoken has it: each token of the model is a byte string whose id is its rank, and a pair merges if what it
  // makes is a token, the lowest rank first, the leftmost of equals. `vocabulary` is spelled in the byte alphabet.
  static Result<std::unique_ptr<Bpe>> make_ranked(const Vocabulary& vocabulary);

  // Appends the ids of `word`, which is valid UTF-8 or, with byte symbols, any bytes.
  void encode_word(std::string_view word, std::vector<TokenId>& out) const override;
  bool takes_bytes() const override { return options_.byte_symbols && covers_bytes_; }
  // Every byte has a token of its own.
  bool covers_bytes() const { return covers_bytes_; }

 private:
  Bpe() = default;
  void index_bytes(const Vocabulary& vocabulary);
  void index_words(const Vocabulary& vocabulary);
  void start_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  void start_characters(std::string_view word, std::vector<TokenId>& symbols) const;
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;
  void merge(std::vector<TokenId>& symbols) const;

  BpeOptions options_;
  MergeMap merges_;
  WordMap words_;  // tokens that may be taken whole
  std::array<TokenId, 256> byte_tokens_{};
  std::unordered_map<int32_t, TokenId> characters_;
  bool covers_bytes_ = false;
};

}  // namespace baton::text
