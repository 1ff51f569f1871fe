#include "text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "text/tokenizer/vocabulary.h"

namespace baton::text {
namespace {

// A token is a string, or an object with its content.
std::optional<std::string> token_content(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json_member(json, "content").is_string()) return json_string(json, "content");
  return std::nullopt;
}

// transformers' classes that rebuild the post-processor from add_bos_token (true unless said) and add_eos_token.
bool is_llama_class(std::string_view name) {
  static constexpr std::string_view kNames[] = {"LlamaTokenizer",     "LlamaTokenizerFast", "GemmaTokenizer",
                                                "GemmaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                                                "CohereTokenizer",    "CohereTokenizerFast"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

Result<AddedToken> parse_added_token(const Json& json, std::optional<int64_t> id) {
  const auto content = token_content(json);
  if (!content || !id) return fail(Code::kInvalidArgument, "an added token without content or id");
  if (*id < 0 || *id > Vocabulary::kMaxId) {
    return fail(Code::kInvalidArgument, "added token \"{}\" has id {}: ids go from 0 to {}", *content, *id,
                Vocabulary::kMaxId);
  }
  AddedToken token;
  token.id = static_cast<TokenId>(*id);
  token.content = *content;
  token.special = json_bool(json, "special", false);
  token.lstrip = json_bool(json, "lstrip", false);
  token.rstrip = json_bool(json, "rstrip", false);
  token.single_word = json_bool(json, "single_word", false);
  token.normalized = json_bool(json, "normalized", !token.special);
  return token;
}

Result<TokenizerConfig> parse_tokenizer_config(const Json& json) {
  TokenizerConfig config;
  config.tokenizer_class = json_string(json, "tokenizer_class");
  config.bos = token_content(json_member(json, "bos_token"));
  config.eos = token_content(json_member(json, "eos_token"));
  const Json& add_bos = json_member(json, "add_bos_token");
  const Json& add_eos = json_member(json, "add_eos_token");
  if (add_bos.is_boolean()) config.add_bos = add_bos.get<bool>();
  if (add_eos.is_boolean()) config.add_eos = add_eos.get<bool>();
  if (is_llama_class(config.tokenizer_class)) {
    config.add_bos = config.add_bos.value_or(true);
    config.add_eos = config.add_eos.value_or(false);
  }
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (auto content = token_content(json_member(json, key))) config.special_tokens.push_back(std::move(*content));
  }
  // The second is what transformers 5 writes.
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json& additional = json_member(json, key);
    if (!additional.is_array()) continue;
    for (const Json& one : additional) {
      if (auto content = token_content(one)) config.special_tokens.push_back(std::move(*content));
    }
  }
  const Json& added = json_member(json, "added_tokens_decoder");
  if (added.is_object()) {
    for (const auto& [key, value] : added.items()) {
      int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        return fail(Code::kInvalidArgument, "added_tokens_decoder: \"{}\" is no id", key);
      }
      BATON_TRY_ASSIGN(AddedToken token, parse_added_token(value, id));
      config.added_tokens.push_back(std::move(token));
    }
    std::sort(config.added_tokens.begin(), config.added_tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  }
  return config;
}

}  // namespace baton::text
