// A tokenizer for tests: token = byte, plus <eos> (256) and <user> (257).
#pragma once

#include <array>
#include <string>

#include "text/tokenizer.h"

namespace baton::server::testing {

class ByteTokenizer final : public text::Tokenizer {
 public:
  static constexpr TokenId kEos = 256;
  static constexpr TokenId kUser = 257;

  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) pieces_[i] = std::string(1, static_cast<char>(i));
  }
  std::vector<TokenId> encode(std::string_view text, const text::EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < text.size();) {
      if (options.parse_special_tokens && text.substr(i).starts_with("<user>")) {
        ids.push_back(kUser);
        i += 6;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i++]));
      }
    }
    return ids;
  }
  std::string_view token_bytes(TokenId id) const override { return token_spelling(id); }
  bool is_special(TokenId id) const override { return id >= 256; }
  std::string_view token_spelling(TokenId id) const override {
    if (id == kEos) return "<eos>";
    if (id == kUser) return "<user>";
    return id >= 0 && id < 256 ? std::string_view(pieces_[id]) : std::string_view();
  }
  std::optional<TokenId> token_id(std::string_view spelling) const override {
    if (spelling == "<eos>") return kEos;
    if (spelling == "<user>") return kUser;
    if (spelling.size() == 1) return static_cast<unsigned char>(spelling[0]);
    return std::nullopt;
  }
  int vocab_size() const override { return 258; }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::vector<TokenId> eos_ids() const override { return {kEos}; }

 private:
  std::array<std::string, 256> pieces_;
};

}  // namespace baton::server::testing
