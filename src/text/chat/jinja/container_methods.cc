// Methods of dict, list and tuple that change nothing.
#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

Result<Value> dict_keys(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("keys", arguments, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) items.push_back(key);
  return in.make_sequence(Kind::kDictKeys, std::move(items));
}

Result<Value> dict_values(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("values", arguments, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) items.push_back(value);
  return in.make_sequence(Kind::kDictValues, std::move(items));
}

Result<Value> dict_items(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("items", arguments, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) {
    BATON_TRY_ASSIGN(Value pair, in.make_sequence(Kind::kTuple, {key, value}));
    items.push_back(std::move(pair));
  }
  return in.make_sequence(Kind::kDictItems, std::move(items));
}

Result<Value> dict_get(Interpreter&, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty()) return fail(Code::kInvalidArgument, "dict.get() takes no keyword arguments");
  BATON_TRY_ASSIGN(auto bound, bind("get", arguments, {"key", "default"}, 1));
  if (!hashable(*bound[0])) return fail(Code::kInvalidArgument, "unhashable type: '{}'", type_name(*bound[0]));
  const Value* found = self.as_dict().find(*bound[0]);
  if (found != nullptr) return *found;
  return bound[1] != nullptr ? *bound[1] : Value::none();
}

Result<Value> dict_copy(Interpreter&, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("copy", arguments, {}));
  return self;
}

Result<Value> sequence_count(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("count", arguments, {"value"}, 1));
  BATON_TRY(in.spend_steps(static_cast<int64_t>(self.as_sequence().items.size())));
  int64_t count = 0;
  for (const Value& item : self.as_sequence().items) count += equal(item, *bound[0]) ? 1 : 0;
  return Value::integer(count);
}

Result<Value> sequence_index(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("index", arguments, {"value", "start"}, 1));
  BATON_TRY_ASSIGN(int64_t start, int_or("index", bound[1], 0));
  const std::vector<Value>& items = self.as_sequence().items;
  BATON_TRY(in.spend_steps(static_cast<int64_t>(items.size())));
  auto count = static_cast<int64_t>(items.size());
  for (int64_t i = std::max<int64_t>(start < 0 ? start + count : start, 0); i < count; ++i) {
    if (equal(items[static_cast<size_t>(i)], *bound[0])) return Value::integer(i);
  }
  std::string shown;
  BATON_TRY(append_repr(shown, *bound[0], in.text_limit()));
  return fail(Code::kInvalidArgument, "{} is not in {}", shown, type_name(self));
}

}  // namespace

NativeFunction find_dict_method(std::string_view name) {
  if (name == "keys") return dict_keys;
  if (name == "values") return dict_values;
  if (name == "items") return dict_items;
  if (name == "get") return dict_get;
  if (name == "copy") return dict_copy;
  return nullptr;
}

NativeFunction find_sequence_method(std::string_view name) {
  if (name == "count") return sequence_count;
  if (name == "index") return sequence_index;
  if (name == "copy") return dict_copy;
  return nullptr;
}

}  // namespace baton::text::jinja
