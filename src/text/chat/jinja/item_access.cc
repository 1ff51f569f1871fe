#include "text/chat/jinja/item_access.h"

#include <numeric>

#include "text/chat/jinja/merge_sort.h"
#include "text/chat/jinja/py_string.h"

namespace baton::text::jinja {

AttributePath::AttributePath(const Value* attribute) {
  if (attribute == nullptr || attribute->is(Kind::kNone)) return;
  if (attribute->is_string()) {
    add_dotted(attribute->as_string());
  } else {
    parts_.push_back(*attribute);
  }
}

void AttributePath::add_dotted(std::string_view dotted) {
  for (std::string_view part : split(dotted, ".", -1)) {
    bool digits = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos;
    parts_.push_back(digits ? Value::integer(std::stoll(std::string(part))) : Value::string(std::string(part)));
  }
}

Result<Value> AttributePath::of(Interpreter& interpreter, Value item, const Value* otherwise) const {
  for (const Value& part : parts_) {
    BATON_TRY(interpreter.spend_steps(1));
    BATON_TRY_ASSIGN(item, interpreter.get_item(item, part));
    if (item.is_undefined() && otherwise != nullptr && !otherwise->is(Kind::kNone)) item = *otherwise;
  }
  return item;
}

Value fold_case(const Value& value) { return value.is_string() ? Value::string(lower(value.as_string())) : value; }

Result<std::vector<Value>> sorted_by(Interpreter& interpreter, std::vector<Value> items, std::vector<Value> keys,
                                     bool reverse) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  // Python keeps the order of equals also when it sorts downwards.
  BATON_TRY(merge_sort(order, [&](size_t a, size_t b) -> Result<bool> {
    BATON_TRY(interpreter.spend_steps(1));
    BATON_TRY_ASSIGN(int result, reverse ? compare(keys[b], keys[a], "<") : compare(keys[a], keys[b], "<"));
    return result < 0;
  }));
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (size_t index : order) sorted.push_back(std::move(items[index]));
  return sorted;
}

}  // namespace baton::text::jinja
