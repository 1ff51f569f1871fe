#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace baton::text {
namespace {

size_t last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = text.substr(0, begin), after = text.substr(end);
  const bool word_before = !before.empty() && is_word(decode_utf8(before.substr(last_character(before))).code_point);
  const bool word_after = !after.empty() && is_word(decode_utf8(after).code_point);
  return !word_before && !word_after;
}

size_t space_begin(std::string_view before, size_t floor) {
  while (before.size() > floor) {
    const size_t at = last_character(before);
    if (!is_white_space(decode_utf8(before.substr(at)).code_point)) break;
    before = before.substr(0, at);
  }
  return std::max(before.size(), floor);
}

size_t space_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = decode_utf8(text.substr(at));
    if (!is_white_space(step.code_point)) break;
    at += step.size;
  }
  return at;
}

}  // namespace

Result<void> AddedTokenFinder::add(AddedToken token, std::string_view spelling) {
  if (spelling.empty()) return {};
  if (spelling.size() > kContentMax) {
    return fail(Code::kInvalidArgument, "the added token with id {} has {} bytes: at most {}", token.id,
                spelling.size(), kContentMax);
  }
  uint32_t node = 0;
  for (const char byte : spelling) {
    const auto [edge, is_new] =
        edges_.try_emplace(uint64_t{node} << 8 | static_cast<uint8_t>(byte), static_cast<uint32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({});
    node = edge->second;
  }
  if (nodes_[node].token >= 0) return {};
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  starts_[static_cast<uint8_t>(spelling[0])] = true;
  tokens_.push_back(std::move(token));
  return {};
}

int32_t AddedTokenFinder::longest_at(std::string_view text, size_t at, size_t& size) const {
  int32_t best = -1;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (nodes_[node].token >= 0) {
      best = nodes_[node].token;
      size = i + 1 - at;
    }
  }
  return best;
}

void AddedTokenFinder::cut(std::string_view text, bool with_special, std::vector<Stretch>& out,
                           bool with_others) const {
  size_t done = 0;  // covered by stretches
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    size_t size = 0;
    const int32_t index = starts_[static_cast<uint8_t>(text[at])] ? longest_at(text, at, size) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at, end = at + size;
    at = end;
    if (begin < done) continue;  // inside of the white space that the last one took
    if (token.special ? !with_special : !with_others) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = space_begin(text.substr(0, begin), done);
    if (token.rstrip) end = space_end(text, end);
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace baton::text
