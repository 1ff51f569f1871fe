#include "text/tokenizer/vocabulary.h"

namespace baton::text {

Result<void> Vocabulary::set(TokenId id, std::string spelling, size_t expected_count) {
  if (id < 0 || id > kMaxId) {
    return fail(Code::kInvalidArgument, "token \"{}\" has id {}: ids go from 0 to {}", spelling, id, kMaxId);
  }
  if (static_cast<size_t>(id) > expected_count * 4 + 65536) {
    return fail(Code::kInvalidArgument, "token \"{}\" has id {} in a vocabulary of {} tokens: not a usable vocabulary",
                spelling, id, expected_count);
  }
  const auto at = static_cast<size_t>(id);
  if (at >= spellings_.size()) {
    spellings_.resize(at + 1);
    bytes_.resize(at + 1);
    present_.resize(at + 1);
    in_model_.resize(at + 1);
    special_.resize(at + 1);
  }
  spellings_[at] = std::move(spelling);
  present_[at] = true;
  in_model_[at] = true;
  return {};
}

void Vocabulary::freeze() {
  ids_.clear();
  ids_.reserve(spellings_.size());
  for (size_t at = 0; at < spellings_.size(); ++at) {
    if (present_[at]) ids_.emplace(spellings_[at], static_cast<TokenId>(at));
  }
}

std::string_view Vocabulary::spelling(TokenId id) const {
  return contains(id) ? std::string_view(spellings_[static_cast<size_t>(id)]) : std::string_view();
}

std::string_view Vocabulary::bytes(TokenId id) const {
  return contains(id) ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
}

std::optional<TokenId> Vocabulary::find(std::string_view spelling) const {
  const auto found = ids_.find(spelling);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

int byte_of_hex_spelling(std::string_view s) {
  if (s.size() != 6 || s.substr(0, 3) != "<0x" || s[5] != '>') return -1;
  int value = 0;
  for (const char c : s.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace baton::text
