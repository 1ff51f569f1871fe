// The tokenizer that all vocabularies with a pipeline share: added tokens are found first, then what lies between them
// is normalised, cut into words and encoded by the model. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_model.h"

namespace baton::text {

struct Pipeline {
  Vocabulary vocabulary;  // frozen
  AddedTokenFinder raw_tokens, normalized_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const WordModel> model;  // may point into `vocabulary`'s strings
  std::vector<TokenId> before, after;      // what add_special_tokens puts around a text
  std::optional<TokenId> bos;
  std::vector<TokenId> eos;
  std::string decode_prefix;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline) : p_(std::move(pipeline)) {}

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view token_bytes(TokenId id) const override { return p_.vocabulary.bytes(id); }
  bool is_special(TokenId id) const override { return p_.vocabulary.is_special(id); }
  std::string_view token_spelling(TokenId id) const override { return p_.vocabulary.spelling(id); }
  std::optional<TokenId> token_id(std::string_view spelling) const override { return p_.vocabulary.find(spelling); }
  int vocab_size() const override { return p_.vocabulary.size(); }
  std::optional<TokenId> bos_id() const override { return p_.bos; }
  std::vector<TokenId> eos_ids() const override { return p_.eos; }
  std::string_view decode_prefix() const override { return p_.decode_prefix; }

 private:
  struct Call;
  void encode_valid(std::string_view text, bool at_start, Call& call) const;
  void encode_plain(std::string_view text, bool at_start, Call& call) const;
  void encode_words(std::string_view text, bool at_start, Call& call) const;

  Pipeline p_;
};

}  // namespace baton::text
