#include "server/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace baton::server {
namespace {

// Length of the longest end of `text` that is a proper beginning of `stop`.
size_t partial_match(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

StopMatcher::Step StopMatcher::push(std::string_view piece, bool active) {
  held_ += piece;
  if (stops_.empty() || !active) return {std::exchange(held_, {}), std::nullopt};

  size_t first = std::string::npos;
  const std::string* found = nullptr;
  for (const auto& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at < first) {
      first = at;
      found = &stop;
    }
  }
  if (found != nullptr) {
    held_.resize(first + (include_in_output_ ? found->size() : 0));
    return {std::exchange(held_, {}), *found};
  }
  size_t keep = 0;
  for (const auto& stop : stops_) keep = std::max(keep, partial_match(held_, stop));
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return {std::move(certain), std::nullopt};
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace baton::server
