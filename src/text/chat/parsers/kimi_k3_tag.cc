#include "text/chat/parsers/kimi_k3_tag.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/chat/parsers/event_writer.h"

namespace baton::text {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"think",    "response", "tools",  "call",
                                                    "argument", "json",     "message"};
constexpr std::string_view kOpen = "<|open|>", kClose = "<|close|>", kSeparator = "<|sep|>";

std::string_view first_word(std::string_view header) {
  header.remove_prefix(std::min(header.find_first_not_of(kSpaces), header.size()));
  return header.substr(0, header.find_first_of(kSpaces));
}

std::string unescaped(std::string_view value) {
  std::string text;
  while (!value.empty()) {
    const size_t at = std::min(value.find('&'), value.size());
    text += value.substr(0, at);
    value.remove_prefix(at);
    if (value.starts_with("&quot;")) {
      text += '"';
      value.remove_prefix(6);
    } else if (value.starts_with("&amp;")) {
      text += '&';
      value.remove_prefix(5);
    } else if (!value.empty()) {
      text += '&';
      value.remove_prefix(1);
    }
  }
  return text;
}

std::string_view header_of(const K3Tag& tag) {
  std::string_view header = tag.raw;
  header.remove_prefix((tag.opens ? kOpen : kClose).size());
  if (header.ends_with(kSeparator)) header.remove_suffix(kSeparator.size());
  return header;
}

}  // namespace

std::string K3Tag::attribute(std::string_view key) const {
  std::string_view rest = header_of(*this);
  while (!rest.empty()) {
    const size_t begin = rest.find("=\"");
    if (begin == std::string_view::npos) return {};
    const size_t end = rest.find('"', begin + 2);
    if (end == std::string_view::npos) return {};
    std::string_view found = rest.substr(0, begin);
    found = found.substr(found.find_last_of(kSpaces) + 1);
    if (found == key) return unescaped(rest.substr(begin + 2, end - begin - 2));
    rest.remove_prefix(end + 1);
  }
  return {};
}

// Whether what is held may still become a known tag.
bool K3TagReader::plausible() const {
  if (tag_.raw.size() > kHeaderBytesMax) return false;
  const std::string_view header = header_of(tag_);
  const std::string_view word = first_word(header);
  if (std::min(header.find_first_not_of(kSpaces), header.size()) > kSpaceBytesMax) return false;
  const bool whole = !word.empty() && word.data() + word.size() < header.data() + header.size();
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return whole ? name == word : name.starts_with(word); });
}

void K3TagReader::give_up(std::vector<Part>& parts) {
  if (std::string text = finish(); !text.empty()) parts.push_back({std::move(text), std::nullopt, false});
}

std::string K3TagReader::finish() {
  inside_ = false;
  const K3Tag tag = std::exchange(tag_, {});
  return tag.is_token ? std::string() : tag.raw;
}

std::vector<K3TagReader::Part> K3TagReader::take(const Lexeme& lexeme) {
  std::vector<Part> parts;
  switch (lexeme.marker) {
    case Marker::kK3Open:
    case Marker::kK3Close:
      if (inside_) give_up(parts);
      inside_ = true;
      tag_ = {lexeme.marker == Marker::kK3Open, lexeme.is_token, {}, std::string(lexeme.text)};
      return parts;
    case Marker::kK3Separator:
      if (!inside_) break;
      tag_.name = first_word(header_of(tag_));
      tag_.raw += lexeme.text;
      inside_ = false;
      if (std::find(kNames.begin(), kNames.end(), tag_.name) == kNames.end()) {
        give_up(parts);
      } else {
        parts.push_back({{}, std::exchange(tag_, {}), false});
      }
      return parts;
    case Marker::kK3EndOfMessage:
      if (inside_) give_up(parts);
      parts.push_back({lexeme.is_token ? std::string() : std::string(lexeme.text), std::nullopt, true});
      return parts;
    default:
      break;
  }
  if (!inside_) {
    if (!lexeme.is_token) parts.push_back({std::string(lexeme.text), std::nullopt, false});
    return parts;
  }
  tag_.raw += lexeme.text;
  if (!plausible()) {
    // The marker stood for nothing; what followed it is text either way.
    std::string text = tag_.is_token ? std::string(header_of(tag_)) : tag_.raw;
    inside_ = false;
    tag_ = {};
    parts.push_back({std::move(text), std::nullopt, false});
  }
  return parts;
}

}  // namespace baton::text
