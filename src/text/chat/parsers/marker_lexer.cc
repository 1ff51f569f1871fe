#include "text/chat/parsers/marker_lexer.h"

#include <algorithm>
#include <utility>

namespace baton::text {

MarkerLexer::MarkerLexer(std::vector<MarkerSpelling> markers, const std::set<std::string>* tokens) {
  for (const auto& spelling : markers) {
    const bool is_token = tokens != nullptr && tokens->contains(std::string(spelling.text));
    markers_.push_back({spelling, is_token && !spelling.always_text});
  }
}

const MarkerLexer::Known* MarkerLexer::starting_at(std::string_view text, bool& may_become) const {
  may_become = false;
  for (const auto& known : markers_) {
    if (known.by_token) continue;
    if (text.starts_with(known.spelling.text)) return &known;
    may_become |= known.spelling.text.starts_with(text);
  }
  return nullptr;
}

void MarkerLexer::push(std::string_view text, bool is_token, LexemeSink& sink) {
  if (is_token) {
    for (const auto& known : markers_) {
      if (!known.by_token || known.spelling.text != text) continue;
      finish(sink);
      sink.take({known.spelling.marker, text, true});
      return;
    }
  }
  const std::string joined = held_.empty() ? std::string() : std::exchange(held_, {}) + std::string(text);
  std::string_view rest = joined.empty() ? text : std::string_view(joined);
  size_t plain = 0;  // bytes at the start of rest that are text
  while (plain < rest.size()) {
    plain = std::min(rest.find('<', plain), rest.size());
    if (plain == rest.size()) break;
    bool may_become = false;
    const Known* found = starting_at(rest.substr(plain), may_become);
    if (found == nullptr && may_become) {
      held_ = rest.substr(plain);
      rest = rest.substr(0, plain);
      break;
    }
    if (found == nullptr) {
      ++plain;
      continue;
    }
    if (plain > 0) sink.take({Marker::kNone, rest.substr(0, plain)});
    rest.remove_prefix(plain);
    sink.take({found->spelling.marker, rest.substr(0, found->spelling.text.size())});
    rest.remove_prefix(found->spelling.text.size());
    plain = 0;
  }
  if (!rest.empty()) sink.take({Marker::kNone, rest});
}

void MarkerLexer::finish(LexemeSink& sink) {
  const std::string last = std::exchange(held_, {});
  if (!last.empty()) sink.take({Marker::kNone, last});
}

}  // namespace baton::text
