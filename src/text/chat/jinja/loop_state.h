// The `loop` variable of a for statement, and the lazily filtered walk behind it.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "text/chat/jinja/value.h"

namespace baton::text::jinja {

struct Statement;
struct Scope;

struct LoopState {
  std::vector<Value> source;  // what is walked, before the inline `if`
  size_t source_next = 0;
  std::deque<Value> ahead;  // items that passed the filter and were asked for early (loop.last, loop.length)
  int64_t index0 = -1;
  int depth0 = 0;
  int container_depth = 1;
  std::optional<Value> previous;
  std::optional<Value> current;
  std::optional<std::vector<Value>> last_changed;
  const Statement* statement = nullptr;  // for the filter and for recursive loops
  Scope* scope = nullptr;                // where the statement stands; null once the loop has ended
};

}  // namespace baton::text::jinja
