// str.split, rsplit and splitlines.
#include <algorithm>

#include "text/chat/jinja/py_string.h"

namespace baton::text::jinja {

std::vector<std::string_view> split_space(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip(text, std::nullopt, {.left = true, .right = false});
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      CodePoint point = code_point_at(text, end);
      if (is_space(point.value)) break;
      end += point.bytes;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), std::nullopt, {.left = true, .right = false});
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> words = split_space(text, -1);
  if (max_splits < 0 || static_cast<int64_t>(words.size()) <= max_splits + 1) return words;
  auto kept = static_cast<size_t>(max_splits);
  size_t last_joined = words.size() - kept - 1;
  const char* begin = text.data();
  const char* end = words[last_joined].data() + words[last_joined].size();
  std::vector<std::string_view> parts = {std::string_view(begin, static_cast<size_t>(end - begin))};
  parts.insert(parts.end(), words.end() - static_cast<std::ptrdiff_t>(kept), words.end());
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t max_splits) {
  std::vector<std::string_view> parts;
  size_t at = 0;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    size_t hit = find_from(text, separator, at);
    if (hit == std::string_view::npos) break;
    parts.push_back(text.substr(at, hit - at));
    at = hit + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator, int64_t max_splits) {
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    size_t hit = text.rfind(separator);
    if (hit == std::string_view::npos) break;
    parts.push_back(text.substr(hit + separator.size()));
    text = text.substr(0, hit);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

namespace {

bool ends_line(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    bool bad_byte = point.bytes == 1 && point.value >= 0x80;
    if (bad_byte || !ends_line(point.value)) {
      at += point.bytes;
      continue;
    }
    size_t end = at + point.bytes;
    if (point.value == '\r' && end < text.size() && text[end] == '\n') ++end;
    lines.push_back(text.substr(start, (keep_ends ? end : at) - start));
    start = at = end;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace baton::text::jinja
