// map, select, reject, selectattr, rejectattr and unique.
#include "text/chat/jinja/item_access.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

Result<Value> map_attribute(Interpreter& in, const Value& input, const Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("map", arguments, {"attribute", "default"}));
  AttributePath path(bound[0]);
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  for (Value& item : items) {
    BATON_TRY_ASSIGN(item, path.of(in, item, bound[1]));
  }
  return in.make_iterator(std::move(items));
}

Result<Value> filter_map(Interpreter& in, const Value& input, Arguments& arguments) {
  if (!input.truthy()) return in.make_iterator({});
  bool by_attribute = arguments.positional.empty() && !arguments.named.empty();
  if (by_attribute) return map_attribute(in, input, arguments);
  if (arguments.positional.empty()) return fail(Code::kInvalidArgument, "map requires a filter argument");
  BATON_TRY_ASSIGN(std::string name, in.to_str(arguments.positional[0]));
  arguments.positional.erase(arguments.positional.begin());
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  for (Value& item : items) {
    BATON_TRY(in.spend_steps(1));
    BATON_TRY_ASSIGN(item, in.call_filter(name, item, arguments));
  }
  return in.make_iterator(std::move(items));
}

template <bool kByAttribute, bool kWanted>
Result<Value> filter_select(Interpreter& in, const Value& input, Arguments& arguments) {
  if (!input.truthy()) return in.make_iterator({});
  AttributePath path(nullptr);
  if (kByAttribute) {
    if (arguments.positional.empty()) return fail(Code::kInvalidArgument, "Missing parameter for attribute name");
    path = AttributePath(&arguments.positional[0]);
    arguments.positional.erase(arguments.positional.begin());
  }
  std::optional<std::string> test;
  if (!arguments.positional.empty()) {
    BATON_TRY_ASSIGN(test, in.to_str(arguments.positional[0]));
    arguments.positional.erase(arguments.positional.begin());
  }
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  std::vector<Value> chosen;
  for (const Value& item : items) {
    BATON_TRY(in.spend_steps(1));
    BATON_TRY_ASSIGN(Value looked_at, path.of(in, item));
    bool holds = looked_at.truthy();
    if (test) {
      BATON_TRY_ASSIGN(holds, in.call_test(*test, looked_at, arguments));
    }
    if (holds == kWanted) chosen.push_back(item);
  }
  return in.make_iterator(std::move(chosen));
}

Result<Value> filter_unique(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("unique", arguments, {"case_sensitive", "attribute"}));
  bool case_sensitive = bound[0] != nullptr && bound[0]->truthy();
  AttributePath path(bound[1]);
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  Dict seen;
  std::vector<Value> chosen;
  for (const Value& item : items) {
    BATON_TRY_ASSIGN(Value key, path.of(in, item));
    if (!case_sensitive) key = fold_case(key);
    if (!hashable(key)) return fail(Code::kInvalidArgument, "unhashable type: '{}'", type_name(key));
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), Value::none());
    chosen.push_back(item);
  }
  return in.make_iterator(std::move(chosen));
}

}  // namespace

std::vector<NamedFunction> selection_filters() {
  return {{"map", filter_map},
          {"select", filter_select<false, true>},
          {"reject", filter_select<false, false>},
          {"selectattr", filter_select<true, true>},
          {"rejectattr", filter_select<true, false>},
          {"unique", filter_unique}};
}

}  // namespace baton::text::jinja
