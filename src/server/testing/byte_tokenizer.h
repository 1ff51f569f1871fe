// A tokenizer for tests: token = byte, plus <eos> (256), <user> (257) and more special tokens if asked for (258 …).
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace baton::server::testing {

class ByteTokenizer final : public text::Tokenizer {
 public:
  static constexpr TokenId kEos = 256;
  static constexpr TokenId kUser = 257;

  explicit ByteTokenizer(const std::vector<std::string>& more_special = {}) {
    for (int i = 0; i < 256; ++i) pieces_.emplace_back(1, static_cast<char>(i));
    pieces_.emplace_back("<eos>");
    pieces_.emplace_back("<user>");
    pieces_.insert(pieces_.end(), more_special.begin(), more_special.end());
  }
  std::vector<TokenId> encode(std::string_view text, const text::EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      TokenId id = static_cast<unsigned char>(text.front());
      for (TokenId special = kUser; options.parse_special_tokens && special < vocab_size(); ++special) {
        if (text.starts_with(pieces_[special])) id = special;
      }
      ids.push_back(id);
      text.remove_prefix(pieces_[id].size());
    }
    return ids;
  }
  std::string_view token_bytes(TokenId id) const override { return token_spelling(id); }
  bool is_special(TokenId id) const override { return id >= 256; }
  std::string_view token_spelling(TokenId id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(pieces_[id]) : std::string_view();
  }
  std::optional<TokenId> token_id(std::string_view spelling) const override {
    for (TokenId id = 0; id < vocab_size(); ++id) {
      if (pieces_[id] == spelling) return id;
    }
    return std::nullopt;
  }
  int vocab_size() const override { return static_cast<int>(pieces_.size()); }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::vector<TokenId> eos_ids() const override { return {kEos}; }

 private:
  std::vector<std::string> pieces_;
};

}  // namespace baton::server::testing
