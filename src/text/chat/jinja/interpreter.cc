// Budgets, makers and the entry of a render.
#include "text/chat/jinja/interpreter.h"

#include "text/chat/jinja/interpreter_guards.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(std::string(name), std::move(value));
}

const Value* Scope::find_here(std::string_view name) const {
  for (const auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<std::string> Interpreter::render(const Body& body) {
  std::string output;
  OutputGuard guard(*this, &output);
  WorkMeter meter(limits_.steps_max);
  auto flow = execute_body(body);
  auto done = flow.has_value() ? spend_steps(0) : Result<void>(fail(flow.error()));  // 0: the last compare counts too
  if (done.has_value()) return output;
  if (raised_) return fail(done.error());
  return fail(done.error().with_context(fmt::format("chat template, line {}", line_)));
}

Result<void> Interpreter::spend_steps(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps_max || WorkMeter::is_spent())
    return fail(Code::kOutOfRange, "more than {} steps", limits_.steps_max);
  return {};
}

Result<void> Interpreter::spend_bytes(size_t bytes) {
  if (bytes > static_cast<size_t>(limits_.bytes_made_max - bytes_)) {
    return fail(Code::kOutOfRange, "more than {} bytes of values", limits_.bytes_made_max);
  }
  bytes_ += static_cast<int64_t>(bytes);
  return {};
}

Result<Value> Interpreter::make_string(std::string text) {
  if (text.size() > limits_.text_bytes_max) {
    return fail(Code::kOutOfRange, "the text grows beyond {} bytes", limits_.text_bytes_max);
  }
  BATON_TRY(spend_bytes(text.size() + sizeof(std::string)));
  return Value::string(std::move(text));
}

Result<Value> Interpreter::make_sequence(Kind kind, std::vector<Value> items) {
  BATON_TRY(spend_bytes(items.size() * sizeof(Value) + sizeof(Sequence)));
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) sequence->depth = std::max(sequence->depth, item.depth() + 1);
  if (sequence->depth > limits_.container_depth_max) return fail(Code::kOutOfRange, "values nested too deeply");
  sequence->items = std::move(items);
  return Value::sequence(kind, std::move(sequence));
}

Result<Value> Interpreter::make_dict(Dict dict) {
  BATON_TRY(spend_bytes(dict.entries.size() * 2 * sizeof(Value) + sizeof(Dict)));
  if (dict.depth > limits_.container_depth_max) return fail(Code::kOutOfRange, "values nested too deeply");
  return Value::dict(std::make_shared<const Dict>(std::move(dict)));
}

Result<Value> Interpreter::make_iterator(std::vector<Value> items) {
  BATON_TRY(spend_bytes(items.size() * sizeof(Value) + sizeof(IteratorState)));
  auto state = std::make_shared<IteratorState>();
  for (const Value& item : items) state->depth = std::max(state->depth, item.depth() + 1);
  if (state->depth > limits_.container_depth_max) return fail(Code::kOutOfRange, "values nested too deeply");
  state->items = std::move(items);
  return Value::iterator(std::move(state));
}

Result<Value> Interpreter::make_strings(const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) {
    BATON_TRY_ASSIGN(Value item, make_string(std::string(part)));
    items.push_back(std::move(item));
  }
  return make_list(std::move(items));
}

Value Interpreter::make_namespace(Namespace members) {
  namespaces_.push_back(std::move(members));
  return Value::name_space(&namespaces_.back());
}

Value Interpreter::make_method(std::string_view name, NativeFunction function, Value self) const {
  auto callable = std::make_shared<Callable>();
  callable->name = name;
  callable->function = function;
  callable->depth = self.depth() + 1;
  callable->self = std::move(self);
  return Value::callable(std::move(callable));
}

std::unexpected<Status> Interpreter::raise(std::string message) {
  raised_ = true;
  return fail(Status(Code::kInvalidArgument, std::move(message)));
}

Result<std::vector<Value>> Interpreter::iterate(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kString:
      BATON_TRY(spend_bytes(value.as_string().size() * sizeof(Value)));
      for (std::string_view point : code_points(value.as_string())) items.push_back(Value::string(std::string(point)));
      break;
    case Kind::kDict:
      for (const auto& [key, unused] : value.as_dict().entries) items.push_back(key);
      break;
    case Kind::kIterator: {
      IteratorState& state = value.as_iterator();
      items.assign(state.items.begin() + static_cast<std::ptrdiff_t>(state.next), state.items.end());
      state.next = state.items.size();
      break;
    }
    case Kind::kLoop:
      while (true) {
        BATON_TRY_ASSIGN(std::optional<Value> item, loop_next(value.as_loop()));
        if (!item) break;
        items.push_back(std::move(*item));
      }
      break;
    default:
      if (!value.is_sequence()) {
        return fail(Code::kInvalidArgument, "'{}' object is not iterable", type_name(value));
      }
      items = value.as_sequence().items;
  }
  BATON_TRY(spend_steps(static_cast<int64_t>(items.size())));
  BATON_TRY(spend_bytes(items.size() * sizeof(Value)));
  return items;
}

Result<std::string> Interpreter::to_str(const Value& value) {
  std::string text;
  BATON_TRY(append_str(text, value, text_limit()));
  BATON_TRY(spend_bytes(text.size()));
  return text;
}

Result<Value> Interpreter::call_filter(std::string_view name, const Value& input, Arguments arguments) {
  NativeFunction filter = find_filter(name);
  if (filter == nullptr) return fail(Code::kInvalidArgument, "No filter named '{}'.", name);
  return filter(*this, input, arguments);
}

Result<bool> Interpreter::call_test(std::string_view name, const Value& input, Arguments arguments) {
  TestFunction test = find_test(name);
  if (test == nullptr) return fail(Code::kInvalidArgument, "No test named '{}'.", name);
  return test(*this, input, arguments);
}

}  // namespace baton::text::jinja
