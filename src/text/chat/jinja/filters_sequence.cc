// Filters on whole sequences.
#include <algorithm>

#include "text/chat/jinja/item_access.h"
#include "text/chat/jinja/operators.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

Result<Value> filter_length(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("length", arguments, {}));
  if (input.is_undefined()) return Value::integer(0);
  if (input.is_string()) {
    BATON_TRY(in.spend_steps(static_cast<int64_t>(input.as_string().size() / 64)));
    return Value::integer(static_cast<int64_t>(code_point_count(input.as_string())));
  }
  if (input.is(Kind::kDict)) return Value::integer(static_cast<int64_t>(input.as_dict().entries.size()));
  if (input.is_sequence()) return Value::integer(static_cast<int64_t>(input.as_sequence().items.size()));
  return fail(Code::kInvalidArgument, "object of type '{}' has no len()", type_name(input));
}

Result<Value> filter_first(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("first", arguments, {}));
  if (input.is(Kind::kIterator)) {
    IteratorState& state = input.as_iterator();
    if (state.next < state.items.size()) return state.items[state.next++];
    return Value::undefined("No first item, sequence was empty.");
  }
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Result<Value> filter_last(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("last", arguments, {}));
  if (input.is(Kind::kIterator)) return fail(Code::kInvalidArgument, "'generator' object is not reversible");
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Result<Value> filter_list(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("list", arguments, {}));
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  return in.make_list(std::move(items));
}

Result<Value> filter_join(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("join", arguments, {"d", "attribute"}));
  std::string separator;
  if (bound[0] != nullptr) {
    BATON_TRY_ASSIGN(separator, in.to_str(*bound[0]));
  }
  AttributePath path(bound[1]);
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    BATON_TRY_ASSIGN(Value item, path.of(in, items[i]));
    if (i > 0) BATON_TRY(append_str(text, Value::string(separator), in.text_limit()));
    BATON_TRY(append_str(text, item, in.text_limit()));
  }
  return in.make_string(std::move(text));
}

Result<Value> filter_reverse(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("reverse", arguments, {}));
  if (input.is_string()) {
    std::string text;
    BATON_TRY(in.spend_bytes(input.as_string().size() * sizeof(std::string_view)));
    std::vector<std::string_view> points = code_points(input.as_string());
    for (auto it = points.rbegin(); it != points.rend(); ++it) text += *it;
    return in.make_string(std::move(text));
  }
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::kIterator)) return in.make_list(std::move(items));
  return in.make_iterator(std::move(items));
}

Result<Value> filter_items(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("items", arguments, {}));
  if (input.is_undefined()) return in.make_iterator({});
  if (!input.is(Kind::kDict)) return fail(Code::kInvalidArgument, "Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as_dict().entries) {
    BATON_TRY_ASSIGN(Value pair, in.make_sequence(Kind::kTuple, {key, value}));
    pairs.push_back(std::move(pair));
  }
  return in.make_iterator(std::move(pairs));
}

Result<Value> filter_sum(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("sum", arguments, {"attribute", "start"}));
  AttributePath path(bound[0]);
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  for (const Value& item : items) {
    BATON_TRY_ASSIGN(Value part, path.of(in, item));
    BATON_TRY_ASSIGN(total, apply_binary(in, Operator::kAdd, total, part));
  }
  return total;
}

Result<Value> filter_batch(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("batch", arguments, {"linecount", "fill_with"}, 1));
  BATON_TRY_ASSIGN(int64_t count, need_int("batch", *bound[0]));
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  std::vector<Value> lines;
  std::vector<Value> line;
  for (Value& item : items) {
    if (static_cast<int64_t>(line.size()) == count) {
      BATON_TRY_ASSIGN(Value full, in.make_list(std::exchange(line, {})));
      lines.push_back(std::move(full));
    }
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    bool fill = bound[1] != nullptr && !bound[1]->is(Kind::kNone);
    if (fill && count > in.limits().range_max) return fail(Code::kOutOfRange, "batch: lines too long");
    while (fill && static_cast<int64_t>(line.size()) < count) line.push_back(*bound[1]);
    BATON_TRY_ASSIGN(Value last, in.make_list(std::move(line)));
    lines.push_back(std::move(last));
  }
  return in.make_iterator(std::move(lines));
}

Result<Value> filter_slice(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("slice", arguments, {"slices", "fill_with"}, 1));
  BATON_TRY_ASSIGN(int64_t slices, need_int("slice", *bound[0]));
  if (slices < 1 || slices > in.limits().range_max) {
    return fail(Code::kInvalidArgument, "slice: the number of slices must be within 1..{}", in.limits().range_max);
  }
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  auto length = static_cast<int64_t>(items.size());
  int64_t longer = length % slices;
  bool fill = bound[1] != nullptr && !bound[1]->is(Kind::kNone);
  std::vector<Value> out;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    std::vector<Value> one;
    for (int64_t n = length / slices + (i < longer ? 1 : 0); n > 0; --n)
      one.push_back(items[static_cast<size_t>(at++)]);
    if (fill && i >= longer) one.push_back(*bound[1]);
    BATON_TRY_ASSIGN(Value list, in.make_list(std::move(one)));
    out.push_back(std::move(list));
  }
  return in.make_iterator(std::move(out));
}

}  // namespace

std::vector<NamedFunction> sequence_filters() {
  return {{"length", filter_length}, {"count", filter_length}, {"first", filter_first},     {"last", filter_last},
          {"list", filter_list},     {"join", filter_join},    {"reverse", filter_reverse}, {"items", filter_items},
          {"sum", filter_sum},       {"batch", filter_batch},  {"slice", filter_slice}};
}

}  // namespace baton::text::jinja
