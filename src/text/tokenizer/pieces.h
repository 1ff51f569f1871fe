// Text on its way through a tokenizer: one buffer and the pieces it is cut into. One per call; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace baton::text {

struct Span {
  size_t begin, end;
};

struct Pieces {
  std::string text;
  std::vector<Span> spans;
  bool at_text_start = false;  // the first piece starts the whole input
  std::string_view piece(size_t index) const {
    return std::string_view(text).substr(spans[index].begin, spans[index].end - spans[index].begin);
  }
};

}  // namespace baton::text
