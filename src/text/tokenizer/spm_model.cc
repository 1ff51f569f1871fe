#include "text/tokenizer/spm_model.h"

#include <cmath>
#include <queue>

#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

constexpr uint32_t kEnd = ~uint32_t{0};

struct Symbol {
  uint32_t begin, size;  // bytes of the word; size 0 once it is merged away
  uint32_t previous, next;
};

struct Candidate {
  float score;
  uint32_t left;
  uint32_t size;  // of the joined text: tells whether the pair is still the same
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

std::vector<Symbol> characters(std::string_view word) {
  std::vector<Symbol> symbols;
  for (uint32_t at = 0; at < word.size();) {
    const uint32_t size = decode_utf8(word.substr(at)).size;
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({at, size, index == 0 ? kEnd : index - 1, index + 1});
    at += size;
  }
  if (!symbols.empty()) symbols.back().next = kEnd;
  return symbols;
}

}  // namespace

Result<std::unique_ptr<SpmModel>> SpmModel::make(const Vocabulary& vocabulary, std::vector<float> scores,
                                                 const std::array<TokenId, 256>& byte_tokens,
                                                 std::optional<TokenId> unk) {
  if (scores.size() != static_cast<size_t>(vocabulary.size())) {
    return fail(Code::kInvalidArgument, "{} scores for {} tokens", scores.size(), vocabulary.size());
  }
  std::unique_ptr<SpmModel> model(new SpmModel);
  model->words_ = WordMap(scores.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (!std::isfinite(scores[static_cast<size_t>(id)])) {
      return fail(Code::kInvalidArgument, "the score of token {} is not finite", id);
    }
    if (vocabulary.in_model(id) && !vocabulary.spelling(id).empty()) model->words_.insert(vocabulary.spelling(id), id);
  }
  model->scores_ = std::move(scores);
  model->byte_tokens_ = byte_tokens;
  model->unk_ = unk;
  return model;
}

void SpmModel::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<Symbol> symbols = characters(word);
  std::priority_queue<Candidate> queue;
  const auto offer = [&](uint32_t left) {
    if (left == kEnd || symbols[left].next == kEnd) return;
    const uint32_t size = symbols[left].size + symbols[symbols[left].next].size;
    const TokenId id = words_.find(word.substr(symbols[left].begin, size));
    if (id >= 0) queue.push({scores_[static_cast<size_t>(id)], left, size});
  };
  for (uint32_t at = 0; at < symbols.size(); ++at) offer(at);
  while (!queue.empty()) {
    const Candidate candidate = queue.top();
    queue.pop();
    Symbol& left = symbols[candidate.left];
    if (left.size == 0 || left.next == kEnd || left.size + symbols[left.next].size != candidate.size) continue;
    Symbol& right = symbols[left.next];
    left.size = candidate.size;
    right.size = 0;
    left.next = right.next;
    if (left.next != kEnd) symbols[left.next].previous = candidate.left;
    offer(left.previous);
    offer(candidate.left);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.size > 0) append(word.substr(symbol.begin, symbol.size), out);
  }
}

void SpmModel::append(std::string_view symbol, std::vector<TokenId>& out) const {
  if (const TokenId id = words_.find(symbol); id >= 0) return out.push_back(id);
  for (const char byte : symbol) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(byte)];
    if (id < 0) {  // no byte tokens: the whole character is unknown
      if (unk_) out.push_back(*unk_);
      return;
    }
    out.push_back(id);
  }
}

}  // namespace baton::text
