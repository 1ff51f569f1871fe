// How filters look into items: attribute paths, folded case, sorting.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat/jinja/interpreter.h"

namespace baton::text::jinja {

// "a.b.0" as the parts of a path; absent or None: the item itself.
class AttributePath {
 public:
  explicit AttributePath(const Value* attribute);
  explicit AttributePath(std::string_view dotted) { add_dotted(dotted); }
  Result<Value> of(Interpreter& interpreter, Value item, const Value* otherwise = nullptr) const;

 private:
  void add_dotted(std::string_view dotted);
  std::vector<Value> parts_;
};

// Lower case for a string, anything else as it is: how Jinja compares unless told otherwise.
Value fold_case(const Value& value);
// Sorts `items` by `keys` (same length), stably. Error where two keys can't be ordered.
Result<std::vector<Value>> sorted_by(Interpreter& interpreter, std::vector<Value> items, std::vector<Value> keys,
                                     bool reverse);

}  // namespace baton::text::jinja
