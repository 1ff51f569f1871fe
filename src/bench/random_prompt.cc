#include "bench/random_prompt.h"

#include <algorithm>

namespace baton::bench {
namespace {

constexpr int kSettleRounds = 10;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool whole_characters(const text::Tokenizer& tokenizer, TokenId id) {
  return text::decode(tokenizer, std::vector<TokenId>{id}, false).find(kReplacement) == std::string::npos;
}

}  // namespace

std::vector<TokenId> encode_plain(const text::Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special_tokens = false});
}

int64_t special_tokens_added(const text::Tokenizer& tokenizer) { return std::ssize(tokenizer.encode("", {})); }

RandomPrompts::RandomPrompts(const text::Tokenizer& tokenizer, uint64_t seed) : tokenizer_(tokenizer), random_(seed) {
  std::vector<TokenId> parts;  // of characters: they don't come back from a text as they were
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id) || tokenizer.token_bytes(id).empty()) continue;
    (whole_characters(tokenizer, id) ? allowed_ : parts).push_back(id);
  }
  if (allowed_.empty()) allowed_ = std::move(parts);
}

int64_t RandomPrompts::between(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, std::max(low, high))(random_);
}

std::vector<TokenId> RandomPrompts::draw(int64_t count) {
  std::vector<TokenId> ids;
  if (allowed_.empty()) return ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(allowed_[static_cast<size_t>(between(0, vocabulary() - 1))]);
  return ids;
}

std::vector<TokenId> RandomPrompts::run(int64_t offset, int64_t count) const {
  std::vector<TokenId> ids;
  if (allowed_.empty()) return ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(allowed_[static_cast<size_t>((offset + i) % vocabulary())]);
  return ids;
}

void RandomPrompts::settle(std::vector<TokenId> ids, int64_t length, Sample& into) {
  const auto wanted = static_cast<size_t>(length);
  for (int round = 0;; ++round) {
    into.prompt = text::decode(tokenizer_, ids, false);
    into.prompt_ids = encode_plain(tokenizer_, into.prompt);
    if (into.prompt_ids.size() == wanted || round == kSettleRounds) return;
    ids = into.prompt_ids;
    ids.resize(std::min(ids.size(), wanted));
    const auto more = draw(std::ssize(into.prompt_ids) < length ? length - std::ssize(into.prompt_ids) : 0);
    ids.insert(ids.end(), more.begin(), more.end());
  }
}

}  // namespace baton::bench
