// Spellings, raw bytes and kinds of all tokens. Filled at load, then immutable; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"

namespace baton::text {

class Vocabulary {
 public:
  static constexpr TokenId kMaxId = (1 << 24) - 1;

  // Refuses ids below zero, beyond 2^24, or so far beyond `expected_count` that the table would be mostly holes.
  Result<void> set(TokenId id, std::string spelling, size_t expected_count);
  // To be called once, after the last set(): builds the index from spelling to id.
  void freeze();

  int size() const { return static_cast<int>(spellings_.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size() && present_[static_cast<size_t>(id)]; }
  // Empty for ids out of range.
  std::string_view spelling(TokenId id) const;
  std::string_view bytes(TokenId id) const;
  std::optional<TokenId> find(std::string_view spelling) const;
  // False for added tokens that the model itself does not know: only a match of their whole spelling gives them.
  bool in_model(TokenId id) const { return contains(id) && in_model_[static_cast<size_t>(id)]; }
  bool is_special(TokenId id) const { return id >= 0 && id < size() && special_[static_cast<size_t>(id)]; }

  void set_bytes(TokenId id, std::string bytes) { bytes_[static_cast<size_t>(id)] = std::move(bytes); }
  void set_in_model(TokenId id, bool in_model) { in_model_[static_cast<size_t>(id)] = in_model; }
  void set_special(TokenId id, bool special) { special_[static_cast<size_t>(id)] = special; }

 private:
  std::vector<std::string> spellings_;
  std::vector<std::string> bytes_;
  std::vector<bool> present_, in_model_, special_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

// The byte of "<0x0A>"; -1 for any other spelling.
int byte_of_hex_spelling(std::string_view spelling);

}  // namespace baton::text
