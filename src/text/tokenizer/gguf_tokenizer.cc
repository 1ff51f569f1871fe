// Tokenizers from the metadata of GGUF files: byte-level BPE ("gpt2") and SentencePiece's BPE ("llama").
#include <algorithm>
#include <array>

#include "text/tokenizer.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/gguf_pre.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/spm_model.h"
#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
constexpr std::string_view kMetaspace = "\xE2\x96\x81";

class GgufBuilder {
 public:
  explicit GgufBuilder(const GgufTokenizerData& data) : data_(data) {}
  Result<std::unique_ptr<Tokenizer>> build();

 private:
  Result<void> check() const;
  int32_t type_of(TokenId id) const;
  Result<void> read_vocabulary(bool byte_level);
  Result<void> make_bpe();
  Result<void> make_spm();
  void surround(bool add_bos_default);

  const GgufTokenizerData& data_;
  Pipeline out_;
};

int32_t GgufBuilder::type_of(TokenId id) const {
  return data_.token_types.empty() ? kNormal : data_.token_types[static_cast<size_t>(id)];
}

Result<void> GgufBuilder::check() const {
  const size_t count = data_.tokens.size();
  if (count == 0) return fail(Code::kInvalidArgument, "tokenizer.ggml.tokens is empty");
  if (count > static_cast<size_t>(Vocabulary::kMaxId) + 1) {
    return fail(Code::kInvalidArgument, "tokenizer.ggml.tokens has {} tokens: at most {}", count,
                Vocabulary::kMaxId + 1);
  }
  if (!data_.token_types.empty() && data_.token_types.size() != count) {
    return fail(Code::kInvalidArgument, "tokenizer.ggml.token_type has {} entries for {} tokens",
                data_.token_types.size(), count);
  }
  const std::pair<std::string_view, std::optional<TokenId>> ids[] = {
      {"bos", data_.bos_id}, {"eos", data_.eos_id}, {"eot", data_.eot_id}, {"unknown", data_.unk_id}};
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= count)) {
      return fail(Code::kInvalidArgument, "tokenizer.ggml.{}_token_id is {}, outside of {} tokens", name, *id, count);
    }
  }
  return {};
}

Result<void> GgufBuilder::read_vocabulary(bool byte_level) {
  for (TokenId id = 0; id < static_cast<TokenId>(data_.tokens.size()); ++id) {
    const std::string& spelling = data_.tokens[static_cast<size_t>(id)];
    BATON_TRY(out_.vocabulary.set(id, spelling, data_.tokens.size()));
    const int32_t type = type_of(id);
    out_.vocabulary.set_special(id, type == kControl || type == kUnknown);
    out_.vocabulary.set_in_model(id, type == kNormal || (byte_level && type == kByte));
    const bool as_spelled = type == kControl || type == kUserDefined || type == kUnknown;
    const int byte = type == kByte ? byte_of_hex_spelling(spelling) : -1;
    std::string bytes = spelling;
    if (byte >= 0) {
      bytes.assign(1, static_cast<char>(byte));
    } else if (byte_level && !as_spelled) {
      if (auto mapped = alphabet_to_bytes(spelling)) bytes = std::move(*mapped);
    } else if (!byte_level && type != kControl && type != kUnknown) {
      bytes = replace_all(spelling, kMetaspace, " ");
    }
    out_.vocabulary.set_bytes(id, std::move(bytes));
    if (as_spelled && !spelling.empty()) {
      AddedToken token{.id = id, .content = spelling, .special = type != kUserDefined};
      BATON_TRY(out_.raw_tokens.add(std::move(token), spelling));
    }
  }
  out_.vocabulary.freeze();
  return {};
}

Result<void> GgufBuilder::make_bpe() {
  BATON_TRY_ASSIGN(const GgufPre pre, gguf_pre(data_.pre));
  BATON_TRY(read_vocabulary(true));
  if (data_.add_space_prefix.value_or(false)) out_.pre_tokenizer.push_back(make_prefix_space());
  for (const std::string_view pattern : pre.patterns) {
    BATON_TRY_ASSIGN(auto step, make_regex_split(pattern));
    out_.pre_tokenizer.push_back(std::move(step));
  }
  std::vector<Bpe::MergePair> merges;
  merges.reserve(data_.merges.size());
  for (const std::string& merge : data_.merges) {
    // The left part may begin with a space in no alphabet, so the first space parts the two.
    const size_t space = merge.find(' ', 1);
    const auto left = out_.vocabulary.find(std::string_view(merge).substr(0, space));
    const auto right =
        space == std::string::npos ? std::nullopt : out_.vocabulary.find(std::string_view(merge).substr(space + 1));
    if (!left || !right) {
      return fail(Code::kInvalidArgument, "tokenizer.ggml.merges[{}] \"{}\" is not of two tokens", merges.size(),
                  merge);
    }
    merges.push_back({*left, *right});
  }
  BATON_TRY_ASSIGN(out_.model,
                   Bpe::make(out_.vocabulary, merges,
                             {.byte_symbols = true, .ignore_merges = pre.ignore_merges, .unk = data_.unk_id}));
  surround(pre.add_bos);
  return {};
}

Result<void> GgufBuilder::make_spm() {
  BATON_TRY(read_vocabulary(false));
  std::array<TokenId, 256> byte_tokens;
  byte_tokens.fill(-1);
  for (TokenId id = 0; id < out_.vocabulary.size(); ++id) {
    const int byte = type_of(id) == kByte ? byte_of_hex_spelling(out_.vocabulary.spelling(id)) : -1;
    if (byte >= 0) byte_tokens[static_cast<size_t>(byte)] = id;
  }
  const bool prefix = data_.add_space_prefix.value_or(true);
  out_.normalizer.add(make_replace(" ", std::string(kMetaspace)));
  if (prefix) {
    out_.normalizer.add(make_prepend(std::string(kMetaspace)));
    out_.decode_prefix = " ";
  }
  BATON_TRY_ASSIGN(out_.model, SpmModel::make(out_.vocabulary, data_.scores, byte_tokens, data_.unk_id));
  surround(true);
  return {};
}

void GgufBuilder::surround(bool add_bos_default) {
  out_.bos = data_.bos_id;
  if (data_.eos_id) out_.eos.push_back(*data_.eos_id);
  if (data_.eot_id && data_.eot_id != data_.eos_id) out_.eos.push_back(*data_.eot_id);
  for (const auto id : {data_.bos_id, data_.eos_id, data_.eot_id}) {
    if (id && type_of(*id) != kNormal) out_.vocabulary.set_special(*id, true);
  }
  if (data_.bos_id && data_.add_bos.value_or(add_bos_default)) out_.before.push_back(*data_.bos_id);
  if (data_.eos_id && data_.add_eos.value_or(false)) out_.after.push_back(*data_.eos_id);
}

Result<std::unique_ptr<Tokenizer>> GgufBuilder::build() {
  BATON_TRY(check());
  if (data_.model == "gpt2") {
    BATON_TRY(make_bpe());
  } else if (data_.model == "llama") {
    BATON_TRY(make_spm());
  } else {
    return fail(Code::kUnimplemented, "tokenizer.ggml.model \"{}\" is not supported; these are: gpt2, llama",
                data_.model);
  }
  return std::make_unique<PipelineTokenizer>(std::move(out_));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufTokenizerData& data) {
  return GgufBuilder(data).build();
}

}  // namespace baton::text
