// The `loop` variable.
#include "text/chat/jinja/interpreter_guards.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

// The next item of the source that passes the inline condition.
Result<std::optional<Value>> Interpreter::loop_pull(LoopState& loop) {
  while (loop.source_next < loop.source.size()) {
    BATON_TRY(spend_steps(1));
    Value item = loop.source[loop.source_next++];
    if (loop.statement->condition == nullptr) return item;
    if (loop.scope == nullptr) return std::optional<Value>();
    ScopeGuard guard(*this, loop.scope);
    BATON_TRY(assign(loop.statement->target, item));
    BATON_TRY_ASSIGN(Value condition, evaluate(*loop.statement->condition));
    if (condition.truthy()) return item;
  }
  return std::optional<Value>();
}

Result<std::optional<Value>> Interpreter::loop_next(LoopState& loop) {
  std::optional<Value> item;
  if (!loop.ahead.empty()) {
    item = std::move(loop.ahead.front());
    loop.ahead.pop_front();
  } else {
    BATON_TRY_ASSIGN(item, loop_pull(loop));
  }
  if (!item) return item;
  ++loop.index0;
  loop.previous = std::move(loop.current);
  loop.current = item;
  return item;
}

namespace {

Result<Value> loop_cycle(Interpreter&, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) return fail(Code::kInvalidArgument, "no items for cycling given");
  auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(std::max<int64_t>(self.as_loop().index0, 0) % count)];
}

Result<Value> loop_changed(Interpreter&, const Value& self, Arguments& arguments) {
  LoopState& loop = self.as_loop();
  bool same = loop.last_changed.has_value() && loop.last_changed->size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = equal((*loop.last_changed)[i], arguments.positional[i]);
  }
  if (same) return Value::boolean(false);
  if (loop.scope != nullptr) loop.last_changed = arguments.positional;
  return Value::boolean(true);
}

}  // namespace

Result<Value> Interpreter::loop_attribute(const Value& loop_value, std::string_view name) {
  LoopState& loop = loop_value.as_loop();
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "cycle") return make_method(name, loop_cycle, loop_value);
  if (name == "changed") return make_method(name, loop_changed, loop_value);
  if (name == "previtem") {
    return loop.previous && loop.index0 > 0 ? *loop.previous : Value::undefined("there is no previous item");
  }
  if (name == "last" || name == "nextitem") {
    if (loop.ahead.empty()) {
      BATON_TRY_ASSIGN(std::optional<Value> item, loop_pull(loop));
      if (item) loop.ahead.push_back(std::move(*item));
    }
    if (name == "last") return Value::boolean(loop.ahead.empty());
    return loop.ahead.empty() ? Value::undefined("there is no next item") : loop.ahead.front();
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    while (true) {
      BATON_TRY_ASSIGN(std::optional<Value> item, loop_pull(loop));
      if (!item) break;
      loop.ahead.push_back(std::move(*item));
    }
    auto left = static_cast<int64_t>(loop.ahead.size());
    if (name == "length") return Value::integer(loop.index0 + 1 + left);
    return Value::integer(name == "revindex" ? left + 1 : left);
  }
  return Value::undefined(fmt::format("'jinja2.runtime.LoopContext object' has no attribute '{}'", name));
}

Result<Value> Interpreter::call_loop(LoopState& loop, Arguments arguments) {
  if (loop.statement == nullptr || !loop.statement->recursive) {
    return fail(Code::kInvalidArgument, "The loop must have the 'recursive' marker to be called recursively.");
  }
  if (loop.scope == nullptr) return fail(Code::kInvalidArgument, "the loop has ended");
  BATON_TRY_ASSIGN(auto bound, bind("loop", arguments, {"iterable"}, 1));
  BATON_TRY_ASSIGN(std::vector<Value> items, iterate(*bound[0]));
  std::string text;
  OutputGuard output(*this, &text);
  BATON_TRY(run_loop(*loop.statement, std::move(items), loop.depth0 + 1, loop.scope));
  return make_string(std::move(text));
}

}  // namespace baton::text::jinja
