// Finds stop strings in text that arrives in pieces, and holds back what could still become one. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::server {

class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stops, bool include_in_output)
      : stops_(std::move(stops)), include_in_output_(include_in_output) {}

  struct Step {
    std::string text;                    // certain output
    std::optional<std::string> matched;  // the stop string that ended it; nothing follows
  };
  // `active` false (fewer than min_tokens yet): the text passes, and no match is looked for in it.
  Step push(std::string_view piece, bool active = true);
  // The end came by other means: what was held back.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  bool include_in_output_;
  std::string held_;
};

}  // namespace baton::server
