// Special and added tokens are found here, as the library's control symbols never match text; each stretch between
// them goes to the library. libsentencepiece's encoder is const and keeps no state between calls: any thread.
#include "text/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/sentencepiece_check.h"
#include "text/tokenizer/tokenizer_config.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocabulary.h"

namespace baton::text {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";

struct SentencePieceParts {
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor;
  Vocabulary vocabulary;
  AddedTokenFinder added;
  std::vector<TokenId> before, after, eos;
  std::optional<TokenId> bos;
  std::string decode_prefix;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(SentencePieceParts parts) : p_(std::move(parts)) {}

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::string mended;
    if (!is_valid_utf8(text)) text = mended = replace_invalid_utf8(text);
    std::vector<Stretch> stretches;
    p_.added.cut(text, options.parse_special_tokens, stretches, options.parse_added_tokens);
    std::vector<TokenId> ids;
    if (options.add_special_tokens) ids = p_.before;
    for (const Stretch& stretch : stretches) {
      if (stretch.id >= 0) {
        ids.push_back(stretch.id);
      } else {
        encode_plain(text.substr(stretch.begin, stretch.end - stretch.begin), ids);
      }
    }
    if (options.add_special_tokens) ids.insert(ids.end(), p_.after.begin(), p_.after.end());
    return ids;
  }
  std::string_view token_bytes(TokenId id) const override { return p_.vocabulary.bytes(id); }
  bool is_special(TokenId id) const override { return p_.vocabulary.is_special(id); }
  std::string_view token_spelling(TokenId id) const override { return p_.vocabulary.spelling(id); }
  std::optional<TokenId> token_id(std::string_view spelling) const override { return p_.vocabulary.find(spelling); }
  int vocab_size() const override { return p_.vocabulary.size(); }
  std::optional<TokenId> bos_id() const override { return p_.bos; }
  std::vector<TokenId> eos_ids() const override { return p_.eos; }
  std::string_view decode_prefix() const override { return p_.decode_prefix; }

 private:
  void encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
    try {
      std::vector<int> pieces;
      if (p_.processor->Encode(absl::string_view(text.data(), text.size()), &pieces).ok()) {
        ids.insert(ids.end(), pieces.begin(), pieces.end());
      }
    } catch (const std::exception&) {  // no memory: the stretch is lost, not the process
    }
  }
  SentencePieceParts p_;
};

Result<void> read_pieces(SentencePieceParts& out, size_t extra) {
  const auto& processor = *out.processor;
  const int count = processor.GetPieceSize();
  if (count <= 0) return fail(Code::kInvalidArgument, "tokenizer.model: no pieces");
  for (TokenId id = 0; id < count; ++id) {
    const std::string& spelling = processor.IdToPiece(id);
    BATON_TRY(out.vocabulary.set(id, spelling, static_cast<size_t>(count) + extra));
    const bool special = processor.IsControl(id) || processor.IsUnknown(id);
    out.vocabulary.set_special(id, special);
    const int byte = processor.IsByte(id) ? byte_of_hex_spelling(spelling) : -1;
    out.vocabulary.set_bytes(id, byte >= 0 ? std::string(1, static_cast<char>(byte))
                                 : special ? spelling
                                           : replace_all(spelling, kMetaspace, " "));
    if (special) {
      BATON_TRY(out.added.add({.id = id, .content = spelling, .special = true}, spelling));
    }
  }
  return {};
}

Result<void> read_added(SentencePieceParts& out, const TokenizerConfig& config) {
  const int pieces = out.processor->GetPieceSize();
  for (const AddedToken& token : config.added_tokens) {
    if (token.id >= pieces) {
      BATON_TRY(out.vocabulary.set(token.id, token.content, static_cast<size_t>(pieces) + config.added_tokens.size()));
      out.vocabulary.set_bytes(token.id, token.content);
    } else if (out.vocabulary.spelling(token.id) != token.content) {
      return fail(Code::kMismatch, "tokenizer_config.json: added token {} is \"{}\", but tokenizer.model has \"{}\"",
                  token.id, token.content, out.vocabulary.spelling(token.id));
    }
    if (token.special) out.vocabulary.set_special(token.id, true);
    BATON_TRY(out.added.add(token, token.content));
  }
  return {};
}

// A dummy prefix shows in what the encoder makes of a text without a space.
bool adds_space(const sentencepiece::SentencePieceProcessor& processor) {
  std::vector<std::string> pieces;
  return processor.Encode("a", &pieces).ok() && !pieces.empty() && pieces[0].starts_with(kMetaspace);
}

Result<SentencePieceParts> load(std::string_view model, const TokenizerConfig& config) {
  BATON_TRY(check_sentencepiece_model(model));
  SentencePieceParts out;
  out.processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = out.processor->LoadFromSerializedProto(absl::string_view(model.data(), model.size()));
  if (!status.ok()) return fail(Code::kInvalidArgument, "tokenizer.model: {}", status.ToString());
  BATON_TRY(read_pieces(out, config.added_tokens.size()));
  BATON_TRY(read_added(out, config));
  out.vocabulary.freeze();
  const auto find = [&](const std::optional<std::string>& content, int otherwise) -> std::optional<TokenId> {
    if (content) return out.vocabulary.find(*content);
    return otherwise >= 0 ? std::optional<TokenId>(otherwise) : std::nullopt;
  };
  out.bos = find(config.bos, out.processor->bos_id());
  if (const auto eos = find(config.eos, out.processor->eos_id())) out.eos.push_back(*eos);
  if (adds_space(*out.processor)) out.decode_prefix = " ";
  if (out.bos && config.add_bos.value_or(true)) out.before.push_back(*out.bos);
  if (!out.eos.empty() && config.add_eos.value_or(false)) out.after.push_back(out.eos[0]);
  return out;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(std::string_view model, std::string_view config_json) {
  TokenizerConfig config;
  if (!config_json.empty()) {
    BATON_TRY_ASSIGN(const Json json, parse_json(config_json, "tokenizer_config.json"));
    auto parsed = parse_tokenizer_config(json);
    if (!parsed) return fail(parsed.error().with_context("tokenizer_config.json"));
    config = std::move(*parsed);
  }
  try {
    BATON_TRY_ASSIGN(SentencePieceParts parts, load(model, config));
    return std::make_unique<SentencePieceTokenizer>(std::move(parts));
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, "tokenizer.model: {}", error.what());
  }
}

}  // namespace baton::text
