// Prompts of random tokens with a wanted length, for dataset*.cc.
#pragma once

#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/sample.h"
#include "text/tokenizer.h"

namespace baton::bench {

class RandomPrompts {
 public:
  RandomPrompts(const text::Tokenizer& tokenizer, uint64_t seed);
  // Tokens that are not special and spell whole characters, drawn one by one.
  std::vector<TokenId> draw(int64_t count);
  // Tokens in the order of the vocabulary from `offset` on, as vLLM's random data set has them.
  std::vector<TokenId> run(int64_t offset, int64_t count) const;
  // Decodes and encodes `ids` until the text has `length` tokens (ten times at most, as vLLM does). Fills prompt, ids.
  void settle(std::vector<TokenId> ids, int64_t length, Sample& into);
  // Within [low, high].
  int64_t between(int64_t low, int64_t high);
  int64_t vocabulary() const { return std::ssize(allowed_); }
  std::mt19937_64& generator() { return random_; }

 private:
  const text::Tokenizer& tokenizer_;
  std::mt19937_64 random_;
  std::vector<TokenId> allowed_;
};

// Of the text alone: no BOS, and special tokens spelt out stay text.
std::vector<TokenId> encode_plain(const text::Tokenizer& tokenizer, std::string_view text);
// How many tokens a server adds to every prompt (BOS, EOS).
int64_t special_tokens_added(const text::Tokenizer& tokenizer);

}  // namespace baton::bench
