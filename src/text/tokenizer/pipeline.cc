#include "text/tokenizer/pipeline.h"

#include "text/tokenizer/unicode.h"

namespace baton::text {

struct PipelineTokenizer::Call {
  const EncodeOptions& options;
  SearchBudget budget;
  std::vector<TokenId> ids;
};

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Call call{options, SearchBudget(text.size()), {}};
  call.ids.reserve(text.size() / 3 + 8);
  if (options.add_special_tokens) call.ids = p_.before;
  if (p_.model->takes_bytes()) {
    for (size_t at = 0; at < text.size();) {
      const size_t good = valid_utf8_prefix(text.substr(at));
      if (good > 0) encode_valid(text.substr(at, good), at == 0, call);
      at += good;
      if (at == text.size()) break;
      const size_t bad = decode_utf8(text.substr(at)).size;
      for (size_t i = 0; i < bad; ++i) p_.model->encode_word(text.substr(at + i, 1), call.ids);
      at += bad;
    }
  } else if (is_valid_utf8(text)) {
    encode_valid(text, true, call);
  } else {
    encode_valid(replace_invalid_utf8(text), true, call);
  }
  if (options.add_special_tokens) call.ids.insert(call.ids.end(), p_.after.begin(), p_.after.end());
  return std::move(call.ids);
}

void PipelineTokenizer::encode_valid(std::string_view text, bool at_start, Call& call) const {
  std::vector<Stretch> stretches;
  p_.raw_tokens.cut(text, call.options.parse_special_tokens, stretches, call.options.parse_added_tokens);
  for (const Stretch& stretch : stretches) {
    if (stretch.id >= 0) {
      call.ids.push_back(stretch.id);
    } else {
      encode_plain(text.substr(stretch.begin, stretch.end - stretch.begin), at_start && stretch.begin == 0, call);
    }
  }
}

void PipelineTokenizer::encode_plain(std::string_view text, bool at_start, Call& call) const {
  std::string normalized;
  if (!p_.normalizer.empty()) {
    normalized = p_.normalizer.run(text, call.budget);
    text = normalized;
  }
  if (p_.normalized_tokens.empty()) return encode_words(text, at_start, call);
  std::vector<Stretch> stretches;
  p_.normalized_tokens.cut(text, call.options.parse_special_tokens, stretches, call.options.parse_added_tokens);
  for (const Stretch& stretch : stretches) {
    if (stretch.id >= 0) {
      call.ids.push_back(stretch.id);
    } else {
      encode_words(text.substr(stretch.begin, stretch.end - stretch.begin), at_start && stretch.begin == 0, call);
    }
  }
}

void PipelineTokenizer::encode_words(std::string_view text, bool at_start, Call& call) const {
  if (text.empty()) return;
  Pieces pieces{std::string(text), {{0, text.size()}}, at_start};
  for (const auto& step : p_.pre_tokenizer) step->run(pieces, call.budget);
  for (size_t i = 0; i < pieces.spans.size(); ++i) p_.model->encode_word(pieces.piece(i), call.ids);
}

}  // namespace baton::text
