// Tokens that are found in the text as they are spelled, before the model sees what lies between them: special tokens
// and those added to a vocabulary later. Finds the leftmost, then longest. Immutable after build; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"

namespace baton::text {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;
  bool lstrip = false;       // takes the white space before it too
  bool rstrip = false;       // and behind it
  bool single_word = false;  // not inside of a word
  bool normalized = false;   // searched in the normalised text
};

// A stretch of text: a token that was found (id >= 0), or what lies between (id < 0).
struct Stretch {
  size_t begin, end;
  TokenId id;
};

class AddedTokenFinder {
 public:
  static constexpr size_t kContentMax = 1024;
  // Spelled as `spelling`; a spelling seen before keeps its first token. kInvalidArgument for an over-long one.
  Result<void> add(AddedToken token, std::string_view spelling);
  bool empty() const { return tokens_.empty(); }
  // Covers `text`; with `with_special` false, special tokens are ordinary text; with `with_others` false, the others.
  void cut(std::string_view text, bool with_special, std::vector<Stretch>& out, bool with_others = true) const;

 private:
  struct Node {
    int32_t token = -1;  // index into tokens_
  };
  // Index and length of the longest token at `at`, or -1.
  int32_t longest_at(std::string_view text, size_t at, size_t& size) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  bool starts_[256] = {};
};

}  // namespace baton::text
