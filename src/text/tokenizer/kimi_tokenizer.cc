#include "text/tokenizer/kimi_tokenizer.h"

#include <algorithm>
#include <cctype>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/kimi_split.h"
#include "text/tokenizer/tiktoken_file.h"
#include "text/tokenizer/tokenizer_config.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocabulary.h"

namespace baton::text {
namespace {

constexpr int kSpecialCount = 256;

struct KimiParts {
  std::unique_ptr<Vocabulary> vocabulary = std::make_unique<Vocabulary>();  // the model points into it
  std::unique_ptr<Bpe> model;
  AddedTokenFinder named;  // of tokenizer_config.json
  AddedTokenFinder all;    // the 256
  std::optional<TokenId> bos;
  std::vector<TokenId> eos;
};

class KimiTokenizer final : public Tokenizer {
 public:
  explicit KimiTokenizer(KimiParts parts) : p_(std::move(parts)) {}

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 4 + 8);
    for (size_t at = 0; at < text.size();) {
      const size_t good = valid_utf8_prefix(text.substr(at));
      encode_valid(text.substr(at, good), options.parse_special_tokens, ids);
      at += good;
      if (at == text.size()) break;
      const size_t bad = decode_utf8(text.substr(at)).size;
      for (size_t i = 0; i < bad; ++i) p_.model->encode_word(text.substr(at + i, 1), ids);
      at += bad;
    }
    return ids;
  }
  std::string_view token_bytes(TokenId id) const override { return p_.vocabulary->bytes(id); }
  bool is_special(TokenId id) const override { return p_.vocabulary->is_special(id); }
  std::string_view token_spelling(TokenId id) const override { return p_.vocabulary->spelling(id); }
  std::optional<TokenId> token_id(std::string_view spelling) const override { return p_.vocabulary->find(spelling); }
  int vocab_size() const override { return p_.vocabulary->size(); }
  std::optional<TokenId> bos_id() const override { return p_.bos; }
  std::vector<TokenId> eos_ids() const override { return p_.eos; }

 private:
  // Calls `on_gap` for the text between the tokens that `finder` finds.
  template <typename OnGap>
  static void between(const AddedTokenFinder& finder, std::string_view text, std::vector<TokenId>& ids,
                      OnGap&& on_gap) {
    std::vector<Stretch> stretches;
    finder.cut(text, true, stretches);
    for (const Stretch& stretch : stretches) {
      if (stretch.id >= 0) {
        ids.push_back(stretch.id);
      } else {
        on_gap(text.substr(stretch.begin, stretch.end - stretch.begin));
      }
    }
  }

  void encode_valid(std::string_view text, bool parse_special, std::vector<TokenId>& ids) const {
    if (!parse_special) return encode_gap(text, false, ids);
    between(p_.named, text, ids, [&](std::string_view gap) { encode_gap(gap, true, ids); });
  }

  void encode_gap(std::string_view text, bool parse_special, std::vector<TokenId>& ids) const {
    std::vector<Span> parts;
    cut_kimi(text, parts);
    for (const Span part : parts) {
      const std::string_view inner = text.substr(part.begin, part.end - part.begin);
      if (parse_special) {
        between(p_.all, inner, ids, [&](std::string_view gap) { encode_plain(gap, ids); });
      } else {
        encode_plain(inner, ids);
      }
    }
  }

  void encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
    std::vector<Span> pieces;
    pieces.reserve(text.size() / 4 + 1);
    split_kimi(text, pieces);
    for (const Span piece : pieces) p_.model->encode_word(text.substr(piece.begin, piece.end - piece.begin), ids);
  }

  KimiParts p_;
};

std::string to_alphabet(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) append_utf8(byte_to_alphabet(static_cast<uint8_t>(byte)), spelling);
  return spelling;
}

class Builder {
 public:
  explicit Builder(TokenizerConfig config) : config_(std::move(config)) {}

  Result<KimiParts> build(std::string_view ranks) {
    BATON_TRY(check_class());
    BATON_TRY_ASSIGN(auto tokens, parse_tiktoken_file(ranks));
    count_ = static_cast<TokenId>(tokens.size());
    for (TokenId id = 0; id < count_; ++id) {
      std::string& token = tokens[static_cast<size_t>(id)];
      BATON_TRY(out_.vocabulary->set(id, to_alphabet(token), tokens.size()));
      out_.vocabulary->set_bytes(id, std::move(token));
    }
    BATON_TRY(add_special());
    out_.vocabulary->freeze();
    BATON_TRY_ASSIGN(out_.model, Bpe::make_ranked(*out_.vocabulary));
    if (config_.bos) out_.bos = out_.vocabulary->find(*config_.bos);
    if (config_.eos) {
      if (const auto eos = out_.vocabulary->find(*config_.eos)) out_.eos.push_back(*eos);
    }
    return std::move(out_);
  }

 private:
  // A rank file does not say its pattern. This one is right for the class that Kimi's checkpoints name.
  Result<void> check_class() const {
    std::string name = config_.tokenizer_class;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name.empty() || name.find("tiktoken") != std::string::npos) return {};
    return fail(Code::kUnimplemented,
                "tokenizer_config.json: tokenizer_class {} over tiktoken.model is not supported (TikTokenTokenizer is)",
                config_.tokenizer_class);
  }

  Result<void> add_special() {
    std::vector<std::string> names(kSpecialCount);
    for (const AddedToken& token : config_.added_tokens) {
      if (token.id < count_ || token.id >= count_ + kSpecialCount) {
        return fail(Code::kInvalidArgument,
                    "tokenizer_config.json: added token \"{}\" has id {}: with {} ranks they go from {} to {}",
                    token.content, token.id, count_, count_, count_ + kSpecialCount - 1);
      }
      names[static_cast<size_t>(token.id - count_)] = token.content;
      BATON_TRY(out_.named.add(unadorned(token.id, token.content), token.content));
    }
    for (TokenId id = count_; id < count_ + kSpecialCount; ++id) {
      std::string& name = names[static_cast<size_t>(id - count_)];
      if (name.empty()) name = fmt::format("<|reserved_token_{}|>", id);
      BATON_TRY(out_.vocabulary->set(id, name, static_cast<size_t>(count_) + kSpecialCount));
      out_.vocabulary->set_bytes(id, name);
      out_.vocabulary->set_in_model(id, false);
      BATON_TRY(out_.all.add(unadorned(id, name), name));
      // Special to a decoder are those that an attribute names, whatever the entry's own flag says.
      const auto& special = config_.special_tokens;
      out_.vocabulary->set_special(id, std::find(special.begin(), special.end(), name) != special.end());
    }
    return {};
  }

  static AddedToken unadorned(TokenId id, const std::string& name) {
    return {.id = id, .content = name, .special = true};
  }

  TokenizerConfig config_;
  KimiParts out_;
  TokenId count_ = 0;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_kimi_tokenizer(std::string_view ranks, std::string_view config_json) {
  TokenizerConfig config;
  if (!config_json.empty()) {
    BATON_TRY_ASSIGN(const Json json, parse_json(config_json, "tokenizer_config.json"));
    auto parsed = parse_tokenizer_config(json);
    if (!parsed) return fail(parsed.error().with_context("tokenizer_config.json"));
    config = std::move(*parsed);
  }
  auto parts = Builder(std::move(config)).build(ranks);
  if (!parts) return fail(parts.error().with_context("tiktoken.model"));
  return std::make_unique<KimiTokenizer>(std::move(*parts));
}

}  // namespace baton::text
