#include "text/tokenizer/hf_tokenizer.h"

#include <algorithm>
#include <unordered_set>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/hf_steps.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/tokenizer_config.h"

namespace baton::text {
namespace {

class Builder {
 public:
  Builder(const Json& json, TokenizerConfig config) : json_(json), config_(std::move(config)) {}
  Result<std::unique_ptr<Tokenizer>> build();

 private:
  Result<void> read_model_vocabulary();
  Result<void> read_added_tokens();
  Result<void> add(AddedToken token);
  Result<void> index_added_tokens(const TokenDecoder& decoder);
  Result<void> make_model(bool byte_level);
  Result<std::vector<Bpe::MergePair>> read_merges() const;
  Result<void> surround();
  Result<TokenId> id_of(const std::string& content, std::string_view role) const;

  const Json& json_;
  TokenizerConfig config_;
  Pipeline out_;
  std::vector<AddedToken> added_;
  std::unordered_set<std::string> added_contents_;
  size_t expected_count_ = 0;
};

Result<void> Builder::read_model_vocabulary() {
  const Json& model = json_member(json_, "model");
  const std::string type = json_string(model, "type", model.is_object() && model.contains("merges") ? "BPE" : "?");
  if (type != "BPE") return fail(Code::kUnimplemented, "tokenizer.json: model {} is not supported (BPE is)", type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json_string(model, key).empty()) {
      return fail(Code::kUnimplemented, "tokenizer.json: model.{} \"{}\" is not supported", key,
                  json_string(model, key));
    }
  }
  const Json& dropout = json_member(model, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0) {
    return fail(Code::kUnimplemented,
                "tokenizer.json: model.dropout is not supported: the same text must give the same tokens");
  }
  const Json& vocab = json_member(model, "vocab");
  if (!vocab.is_object()) return fail(Code::kInvalidArgument, "tokenizer.json: model.vocab is not there");
  const Json& added = json_member(json_, "added_tokens");
  expected_count_ = vocab.size() + added.size() + config_.added_tokens.size();
  std::vector<bool> seen;
  for (const auto& [spelling, value] : vocab.items()) {
    const auto id = json_int(value);
    if (!id || *id < 0 || *id > Vocabulary::kMaxId) {
      return fail(Code::kInvalidArgument, "tokenizer.json: model.vocab: \"{}\" has no id from 0 to {}", spelling,
                  Vocabulary::kMaxId);
    }
    if (out_.vocabulary.contains(static_cast<TokenId>(*id))) {
      return fail(Code::kInvalidArgument, "tokenizer.json: model.vocab: id {} is both \"{}\" and \"{}\"", *id,
                  out_.vocabulary.spelling(static_cast<TokenId>(*id)), spelling);
    }
    BATON_TRY(out_.vocabulary.set(static_cast<TokenId>(*id), spelling, expected_count_));
  }
  return {};
}

// Keeps the id of the model's vocabulary where that has the same spelling. The first of a spelling stays.
Result<void> Builder::add(AddedToken token) {
  if (token.content.empty() || !added_contents_.insert(token.content).second) return {};
  const Json& vocab = json_member(json_member(json_, "model"), "vocab");
  const auto in_model = json_int(json_member(vocab, token.content));
  if (in_model) {
    token.id = static_cast<TokenId>(*in_model);
  } else if (out_.vocabulary.contains(token.id)) {
    return fail(Code::kInvalidArgument, "tokenizer.json: added token \"{}\" has id {}, which is \"{}\"", token.content,
                token.id, out_.vocabulary.spelling(token.id));
  } else {
    BATON_TRY(out_.vocabulary.set(token.id, token.content, expected_count_));
    out_.vocabulary.set_in_model(token.id, false);
  }
  added_.push_back(std::move(token));
  return {};
}

Result<void> Builder::read_added_tokens() {
  const Json& list = json_member(json_, "added_tokens");
  if (list.is_array()) {
    for (const Json& one : list) {
      auto token = parse_added_token(one, json_int(json_member(one, "id")));
      if (!token) return fail(token.error().with_context("tokenizer.json"));
      BATON_TRY(add(std::move(*token)));
    }
  }
  for (const AddedToken& token : config_.added_tokens) BATON_TRY(add(token));
  const Json& vocab = json_member(json_member(json_, "model"), "vocab");
  for (const std::string& content : config_.special_tokens) {
    const auto id = json_int(json_member(vocab, content));
    if (id) BATON_TRY(add({.id = static_cast<TokenId>(*id), .content = content, .special = true}));
  }
  return {};
}

Result<void> Builder::index_added_tokens(const TokenDecoder& decoder) {
  for (const AddedToken& token : added_) {
    if (token.special) out_.vocabulary.set_special(token.id, true);
    if (token.normalized && !out_.normalizer.empty()) {
      // Such a token also reads as its normalised content, as in the library (0.23).
      SearchBudget budget(token.content.size());
      const std::string content = out_.normalizer.run(token.content, budget);
      BATON_TRY(out_.normalized_tokens.add(token, content));  // refuses what is too long
      out_.vocabulary.set_bytes(token.id, decoder.bytes(content));
    } else {
      BATON_TRY((token.normalized ? out_.normalized_tokens : out_.raw_tokens).add(token, token.content));
    }
  }
  return {};
}

Result<std::vector<Bpe::MergePair>> Builder::read_merges() const {
  const Json& merges = json_member(json_member(json_, "model"), "merges");
  if (!merges.is_array()) return fail(Code::kInvalidArgument, "tokenizer.json: model.merges is not there");
  std::vector<Bpe::MergePair> out;
  out.reserve(merges.size());
  for (const Json& merge : merges) {
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    }
    const auto left_id = out_.vocabulary.find(left), right_id = out_.vocabulary.find(right);
    if (left.empty() || right.empty() || !left_id || !right_id) {
      return fail(Code::kInvalidArgument, "tokenizer.json: merge {} (\"{}\" and \"{}\") is not of two tokens",
                  out.size(), left, right);
    }
    out.push_back({*left_id, *right_id});
  }
  return out;
}

Result<void> Builder::make_model(bool byte_level) {
  const Json& model = json_member(json_, "model");
  BpeOptions options;
  options.byte_symbols = byte_level;
  options.ignore_merges = json_bool(model, "ignore_merges", false);
  options.byte_fallback = json_bool(model, "byte_fallback", false);
  options.fuse_unk = json_bool(model, "fuse_unk", false);
  if (const std::string unk = json_string(model, "unk_token"); !unk.empty()) {
    BATON_TRY_ASSIGN(const TokenId id, id_of(unk, "unk_token"));
    options.unk = id;
  }
  BATON_TRY_ASSIGN(const auto merges, read_merges());
  BATON_TRY_ASSIGN(auto bpe, Bpe::make(out_.vocabulary, merges, options));
  if (byte_level && options.byte_fallback && !bpe->covers_bytes()) {
    return fail(Code::kUnimplemented,
                "tokenizer.json: byte_fallback with ByteLevel and a vocabulary without all bytes");
  }
  out_.model = std::move(bpe);
  return {};
}

Result<TokenId> Builder::id_of(const std::string& content, std::string_view role) const {
  const auto id = out_.vocabulary.find(content);
  if (!id) return fail(Code::kInvalidArgument, "tokenizer.json: {} \"{}\" is not in the vocabulary", role, content);
  return *id;
}

// The post-processor's tokens; tokenizer_config.json has the last word where it speaks of BOS and EOS.
Result<void> Builder::surround() {
  BATON_TRY_ASSIGN(const Surround parsed, parse_post_processor(json_member(json_, "post_processor")));
  for (const auto& content : parsed.before) {
    BATON_TRY_ASSIGN(const TokenId id, id_of(content, "post_processor token"));
    out_.before.push_back(id);
  }
  for (const auto& content : parsed.after) {
    BATON_TRY_ASSIGN(const TokenId id, id_of(content, "post_processor token"));
    out_.after.push_back(id);
  }
  if (config_.bos) out_.bos = out_.vocabulary.find(*config_.bos);
  if (config_.eos) {
    if (const auto eos = out_.vocabulary.find(*config_.eos)) out_.eos.push_back(*eos);
  }
  if (config_.add_bos && out_.bos) {
    std::erase(out_.before, *out_.bos);
    if (*config_.add_bos) out_.before.insert(out_.before.begin(), *out_.bos);
  }
  if (config_.add_eos && !out_.eos.empty()) {
    std::erase(out_.after, out_.eos[0]);
    if (*config_.add_eos) out_.after.push_back(out_.eos[0]);
  }
  return {};
}

Result<std::unique_ptr<Tokenizer>> Builder::build() {
  if (!json_.is_object()) return fail(Code::kInvalidArgument, "tokenizer.json: not an object");
  BATON_TRY(read_model_vocabulary());
  BATON_TRY_ASSIGN(out_.normalizer, parse_normalizer(json_member(json_, "normalizer")));
  BATON_TRY_ASSIGN(auto pre_tokenizer, parse_pre_tokenizer(json_member(json_, "pre_tokenizer")));
  out_.pre_tokenizer = std::move(pre_tokenizer.steps);
  BATON_TRY_ASSIGN(const TokenDecoder decoder, parse_decoder(json_member(json_, "decoder")));
  out_.decode_prefix = decoder.prefix;
  BATON_TRY(read_added_tokens());
  out_.vocabulary.freeze();
  for (TokenId id = 0; id < out_.vocabulary.size(); ++id) {
    if (out_.vocabulary.contains(id)) {
      out_.vocabulary.set_bytes(id, decoder.bytes(std::string(out_.vocabulary.spelling(id))));
    }
  }
  BATON_TRY(index_added_tokens(decoder));
  BATON_TRY(make_model(pre_tokenizer.byte_level));
  BATON_TRY(surround());
  return std::make_unique<PipelineTokenizer>(std::move(out_));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_hf_tokenizer(std::string_view tokenizer_json, std::string_view config_json) {
  TokenizerConfig config;
  if (!config_json.empty()) {
    BATON_TRY_ASSIGN(const Json json, parse_json(config_json, "tokenizer_config.json"));
    auto parsed = parse_tokenizer_config(json);
    if (!parsed) return fail(parsed.error().with_context("tokenizer_config.json"));
    config = std::move(*parsed);
  }
  BATON_TRY_ASSIGN(const Json json, parse_json(tokenizer_json, "tokenizer.json"));
  return Builder(json, std::move(config)).build();
}

}  // namespace baton::text
