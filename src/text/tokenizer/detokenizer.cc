#include "text/detokenizer.h"

#include "text/tokenizer/unicode.h"

namespace baton::text {

std::string Detokenizer::push(TokenId id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return {};
  held_ += tokenizer_->token_bytes(id);
  if (at_start_) {
    const std::string_view prefix = tokenizer_->decode_prefix();
    if (held_.size() < prefix.size() && prefix.starts_with(held_)) return {};
    if (held_.starts_with(prefix)) held_.erase(0, prefix.size());
    at_start_ = false;
  }
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const size_t good = valid_utf8_prefix(rest);
    out.append(rest.substr(0, good));
    rest.remove_prefix(good);
    if (rest.empty()) break;
    const Utf8Step step = decode_utf8(rest);
    if (step.cut) break;
    out.append(kReplacement);
    rest.remove_prefix(step.size);
  }
  held_.erase(0, held_.size() - rest.size());
  return out;
}

std::string Detokenizer::finish() {
  std::string out = replace_invalid_utf8(held_);
  held_.clear();
  at_start_ = true;
  return out;
}

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special_tokens) {
  Detokenizer detokenizer(tokenizer, skip_special_tokens);
  std::string out;
  for (const TokenId id : ids) out += detokenizer.push(id);
  return out += detokenizer.finish();
}

}  // namespace baton::text
