#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <queue>

#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

constexpr size_t kShortWord = 32;       // symbols; measured: the heap wins above
constexpr size_t kLongestIndexed = 64;  // bytes of a token that is looked up whole
constexpr uint32_t kNoRank = ~uint32_t{0};

}  // namespace

Result<std::unique_ptr<Bpe>> Bpe::make(const Vocabulary& vocabulary, const std::vector<MergePair>& merges,
                                       BpeOptions options) {
  std::unique_ptr<Bpe> owned(new Bpe);
  Bpe& bpe = *owned;
  bpe.options_ = options;
  bpe.byte_tokens_.fill(-1);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view spelling = vocabulary.spelling(id);
    if (spelling.empty() || !vocabulary.in_model(id)) continue;
    if (options.byte_symbols) {
      const auto bytes = alphabet_to_bytes(spelling);
      if (bytes && bytes->size() == 1) bpe.byte_tokens_[static_cast<uint8_t>((*bytes)[0])] = id;
    } else {
      const Utf8Step step = decode_utf8(spelling);
      if (step.code_point >= 0 && step.size == spelling.size()) bpe.characters_.emplace(step.code_point, id);
      const int byte = byte_of_hex_spelling(spelling);
      if (byte >= 0 && options.byte_fallback) bpe.byte_tokens_[static_cast<size_t>(byte)] = id;
    }
  }
  bpe.covers_bytes_ = std::none_of(bpe.byte_tokens_.begin(), bpe.byte_tokens_.end(), [](TokenId id) { return id < 0; });

  bpe.merges_ = MergeMap(merges.size());
  std::string result;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    result.assign(vocabulary.spelling(merges[rank].left)).append(vocabulary.spelling(merges[rank].right));
    const auto id = vocabulary.find(result);
    if (!id) {
      return fail(Code::kInvalidArgument, "merge {} makes \"{}\", which is not in the vocabulary", rank, result);
    }
    bpe.merges_.insert(merges[rank].left, merges[rank].right, {static_cast<uint32_t>(rank), *id});
  }
  bpe.index_words(vocabulary);
  return owned;
}

void Bpe::index_bytes(const Vocabulary& vocabulary) {
  byte_tokens_.fill(-1);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    if (vocabulary.in_model(id) && bytes.size() == 1) byte_tokens_[static_cast<uint8_t>(bytes[0])] = id;
  }
  covers_bytes_ = std::none_of(byte_tokens_.begin(), byte_tokens_.end(), [](TokenId id) { return id < 0; });
}

Result<std::unique_ptr<Bpe>> Bpe::make_ranked(const Vocabulary& vocabulary) {
  std::unique_ptr<Bpe> owned(new Bpe);
  Bpe& bpe = *owned;
  bpe.options_ = {.byte_symbols = true, .ignore_merges = true};
  bpe.index_bytes(vocabulary);
  bpe.index_words(vocabulary);
  // Every way to make a token of two others: counted first, since the table does not grow.
  const auto each_pair = [&](auto&& use) {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      const std::string_view token = vocabulary.bytes(id);
      if (!vocabulary.in_model(id)) continue;
      for (size_t cut = 1; cut < token.size(); ++cut) {
        const TokenId left = bpe.words_.find(token.substr(0, cut));
        const TokenId right = left < 0 ? -1 : bpe.words_.find(token.substr(cut));
        if (right >= 0) use(left, right, id);
      }
    }
  };
  size_t count = 0;
  each_pair([&](TokenId, TokenId, TokenId) { ++count; });
  bpe.merges_ = MergeMap(count);
  each_pair([&](TokenId left, TokenId right, TokenId id) {
    bpe.merges_.insert(left, right, {static_cast<uint32_t>(id), id});
  });
  return owned;
}

// With ignore_merges every token may be taken whole. Else those to which the merges lead from their own text, which
// is nearly all of them: the lookup then gives what the merges would.
void Bpe::index_words(const Vocabulary& vocabulary) {
  words_ = WordMap(static_cast<size_t>(vocabulary.size()));
  std::vector<TokenId> symbols;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = options_.byte_symbols ? vocabulary.bytes(id) : vocabulary.spelling(id);
    if (text.empty() || !vocabulary.in_model(id)) continue;
    // A byte-level token outside of the alphabet can't be the result of any word.
    if (options_.byte_symbols && alphabet_to_bytes(vocabulary.spelling(id)) != text) continue;
    if (!options_.ignore_merges) {
      if (text.size() > kLongestIndexed) continue;
      symbols.clear();
      start_symbols(text, symbols);
      merge(symbols);
      if (symbols.size() != 1 || symbols[0] != id) continue;
    }
    words_.insert(text, id);
  }
}

void Bpe::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  if (options_.ignore_merges || word.size() <= kLongestIndexed) {
    if (const TokenId id = words_.find(word); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  start_symbols(word, symbols);
  merge(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void Bpe::start_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  if (!options_.byte_symbols) return start_characters(word, symbols);
  bool after_unk = false;
  for (const char byte : word) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(byte)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (options_.unk && !(after_unk && options_.fuse_unk)) {
      symbols.push_back(*options_.unk);
    }
    after_unk = id < 0;
  }
}

void Bpe::start_characters(std::string_view word, std::vector<TokenId>& symbols) const {
  bool after_unk = false;
  while (!word.empty()) {
    const Utf8Step step = decode_utf8(word);
    const std::string_view text = word.substr(0, step.size);
    word.remove_prefix(step.size);
    const auto found = characters_.find(step.code_point);
    if (found != characters_.end()) {
      symbols.push_back(found->second);
      after_unk = false;
      continue;
    }
    const auto has_token = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)] >= 0; };
    if (options_.byte_fallback && std::all_of(text.begin(), text.end(), has_token)) {
      for (const char byte : text) symbols.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
      after_unk = false;
      continue;
    }
    if (options_.unk && !(after_unk && options_.fuse_unk)) symbols.push_back(*options_.unk);
    after_unk = true;
  }
}

void Bpe::merge(std::vector<TokenId>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortWord) return merge_short(symbols);
  merge_long(symbols);
}

void Bpe::merge_short(std::vector<TokenId>& symbols) const {
  struct Pair {
    uint32_t rank = kNoRank;
    TokenId result = -1;
  };
  std::array<Pair, kShortWord> pairs;
  size_t count = symbols.size();
  const auto look_up = [&](size_t at) -> Pair {
    if (at + 1 >= count) return {};
    const auto* merge = merges_.find(symbols[at], symbols[at + 1]);
    return merge ? Pair{merge->rank, merge->result} : Pair{};
  };
  for (size_t at = 0; at < count; ++at) pairs[at] = look_up(at);
  for (;;) {
    size_t best = 0;
    for (size_t at = 1; at + 1 < count; ++at) {
      if (pairs[at].rank < pairs[best].rank) best = at;
    }
    if (pairs[best].rank == kNoRank) break;
    symbols[best] = pairs[best].result;
    for (size_t at = best + 1; at + 1 < count; ++at) {
      symbols[at] = symbols[at + 1];
      pairs[at] = pairs[at + 1];
    }
    --count;
    pairs[best] = look_up(best);
    if (best > 0) pairs[best - 1] = look_up(best - 1);
  }
  symbols.resize(count);
}

void Bpe::merge_long(std::vector<TokenId>& symbols) const {
  struct Candidate {
    uint64_t order;  // rank, then position
    TokenId result;
    bool operator>(const Candidate& other) const { return order > other.order; }
  };
  constexpr uint32_t kEnd = ~uint32_t{0};
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), previous(count);
  for (uint32_t at = 0; at < count; ++at) {
    next[at] = at + 1 < count ? at + 1 : kEnd;
    previous[at] = at > 0 ? at - 1 : kEnd;
  }
  std::vector<Candidate> storage;
  storage.reserve(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>{}, std::move(storage));
  const auto offer = [&](uint32_t at) {
    if (at == kEnd || next[at] == kEnd) return;
    if (const auto* merge = merges_.find(symbols[at], symbols[next[at]])) {
      queue.push({uint64_t{merge->rank} << 32 | at, merge->result});
    }
  };
  for (uint32_t at = 0; at < count; ++at) offer(at);
  while (!queue.empty()) {
    const Candidate candidate = queue.top();
    queue.pop();
    const auto at = static_cast<uint32_t>(candidate.order);
    if (symbols[at] < 0 || next[at] == kEnd) continue;  // merged away meanwhile
    const auto* merge = merges_.find(symbols[at], symbols[next[at]]);
    if (!merge || merge->rank != candidate.order >> 32) continue;  // the pair has changed
    const uint32_t gone = next[at];
    symbols[at] = merge->result;
    symbols[gone] = -1;
    next[at] = next[gone];
    if (next[at] != kEnd) previous[next[at]] = at;
    offer(at);
    offer(previous[at]);
  }
  std::erase_if(symbols, [](TokenId id) { return id < 0; });
}

}  // namespace baton::text
