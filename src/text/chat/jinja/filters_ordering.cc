// sort, dictsort, groupby, min and max.
#include <algorithm>

#include "text/chat/jinja/item_access.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

bool flag(const Value* value) { return value != nullptr && value->truthy(); }

// The key that `sort` compares: one value, or for "a,b" (and always, as Jinja does) a list of them.
Result<Value> sort_key(Interpreter& in, const Value& item, const std::vector<AttributePath>& paths,
                       bool case_sensitive) {
  std::vector<Value> parts;
  for (const AttributePath& path : paths) {
    BATON_TRY_ASSIGN(Value part, path.of(in, item));
    parts.push_back(case_sensitive ? part : fold_case(part));
  }
  return in.make_list(std::move(parts));
}

std::vector<AttributePath> paths_of(const Value* attribute) {
  std::vector<AttributePath> paths;
  if (attribute == nullptr || !attribute->is_string()) {
    paths.emplace_back(attribute);
    return paths;
  }
  for (std::string_view part : split(attribute->as_string(), ",", -1)) paths.emplace_back(part);
  return paths;
}

Result<Value> filter_sort(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  std::vector<AttributePath> paths = paths_of(bound[2]);
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  std::vector<Value> keys;
  for (const Value& item : items) {
    BATON_TRY_ASSIGN(Value key, sort_key(in, item, paths, flag(bound[1])));
    keys.push_back(std::move(key));
  }
  BATON_TRY_ASSIGN(std::vector<Value> sorted, sorted_by(in, std::move(items), std::move(keys), flag(bound[0])));
  return in.make_list(std::move(sorted));
}

Result<Value> filter_dictsort(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  if (input.is_undefined()) return fail(Code::kInvalidArgument, "{}", input.undefined_message());
  if (!input.is(Kind::kDict)) {
    return fail(Code::kInvalidArgument, "'{}' object has no attribute 'items'", type_name(input));
  }
  bool by_value = bound[1] != nullptr && bound[1]->is_string() && bound[1]->as_string() == "value";
  bool by_key = bound[1] == nullptr || (bound[1]->is_string() && bound[1]->as_string() == "key");
  if (!by_value && !by_key) return fail(Code::kInvalidArgument, "You can only sort by either \"key\" or \"value\"");
  std::vector<Value> pairs;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.as_dict().entries) {
    const Value& sorted_on = by_value ? value : key;
    keys.push_back(flag(bound[0]) ? sorted_on : fold_case(sorted_on));
    BATON_TRY_ASSIGN(Value pair, in.make_sequence(Kind::kTuple, {key, value}));
    pairs.push_back(std::move(pair));
  }
  BATON_TRY_ASSIGN(std::vector<Value> sorted, sorted_by(in, std::move(pairs), std::move(keys), flag(bound[2])));
  return in.make_list(std::move(sorted));
}

Result<Value> make_group(Interpreter& in, const Value& grouper, std::vector<Value> items) {
  BATON_TRY_ASSIGN(Value list, in.make_list(std::move(items)));
  BATON_TRY_ASSIGN(Value pair, in.make_sequence(Kind::kTuple, {grouper, list}));
  auto group = std::make_shared<Sequence>(pair.as_sequence());
  group->group = true;
  return Value::sequence(Kind::kTuple, std::move(group));
}

Result<Value> filter_groupby(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  AttributePath path(bound[0]);
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  std::vector<Value> keys;
  for (const Value& item : items) {
    BATON_TRY_ASSIGN(Value key, path.of(in, item, bound[1]));
    keys.push_back(flag(bound[2]) ? key : fold_case(key));
  }
  BATON_TRY_ASSIGN(std::vector<Value> sorted_items, sorted_by(in, std::move(items), keys, false));
  BATON_TRY_ASSIGN(std::vector<Value> sorted_keys, sorted_by(in, keys, keys, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < sorted_items.size();) {
    size_t end = begin + 1;
    while (end < sorted_items.size() && equal(sorted_keys[begin], sorted_keys[end])) ++end;
    std::vector<Value> members(sorted_items.begin() + static_cast<std::ptrdiff_t>(begin),
                               sorted_items.begin() + static_cast<std::ptrdiff_t>(end));
    // The name of a group keeps the case of its first member.
    BATON_TRY_ASSIGN(Value grouper, path.of(in, members.front(), bound[1]));
    BATON_TRY_ASSIGN(Value group, make_group(in, grouper, std::move(members)));
    groups.push_back(std::move(group));
    begin = end;
  }
  return in.make_list(std::move(groups));
}

template <bool kMax>
Result<Value> filter_extreme(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind(kMax ? "max" : "min", arguments, {"case_sensitive", "attribute"}));
  AttributePath path(bound[1]);
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(input));
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    BATON_TRY_ASSIGN(Value key, path.of(in, items[i]));
    if (!flag(bound[0])) key = fold_case(key);
    if (i > 0) {
      BATON_TRY_ASSIGN(int order, compare(key, best_key, kMax ? ">" : "<"));
      if (kMax ? order <= 0 : order >= 0) continue;
    }
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

}  // namespace

std::vector<NamedFunction> ordering_filters() {
  return {{"sort", filter_sort},
          {"dictsort", filter_dictsort},
          {"groupby", filter_groupby},
          {"min", filter_extreme<false>},
          {"max", filter_extreme<true>}};
}

}  // namespace baton::text::jinja
