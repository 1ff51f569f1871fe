// Macros and calls.
#include "text/chat/jinja/interpreter_guards.h"

namespace baton::text::jinja {

Value Interpreter::define_macro(const MacroDefinition& definition) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  macros_.push_back({&definition, scope_});
  auto callable = std::make_shared<Callable>();
  callable->name = definition.name;
  callable->macro = &macros_.back();
  return Value::callable(std::move(callable));
}

Result<void> Interpreter::execute_macro(const Statement& statement) {
  BATON_TRY(spend_bytes(sizeof(Callable) + sizeof(MacroClosure)));
  BATON_TRY(spend_steps(names_cost(scope_->variables.size())));
  scope_->set(statement.macro->name, define_macro(*statement.macro));
  return {};
}

Result<void> Interpreter::execute_call_block(const Statement& statement) {
  BATON_TRY(spend_bytes(sizeof(Callable) + sizeof(MacroClosure)));
  Value caller = define_macro(*statement.macro);
  BATON_TRY_ASSIGN(Value value, evaluate_call(*statement.expression, &caller));
  return write(value);
}

Result<Value> Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) return fail(Code::kInvalidArgument, "{}", callee.undefined_message());
  if (callee.is(Kind::kLoop)) return call_loop(callee.as_loop(), std::move(arguments));
  if (!callee.is(Kind::kCallable)) {
    return fail(Code::kInvalidArgument, "'{}' object is not callable", type_name(callee));
  }
  const Callable& callable = callee.as_callable();
  if (callable.macro != nullptr) return call_macro(*callable.macro, std::move(arguments));
  return callable.function(*this, callable.self, arguments);
}

namespace {

// Takes the named argument out of the list.
std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    arguments.named.erase(it);
    return value;
  }
  return std::nullopt;
}

}  // namespace

Result<void> Interpreter::bind_macro(const MacroDefinition& macro, Arguments arguments, Scope& scope) {
  size_t count = macro.parameters.size();
  size_t first_default = count - macro.defaults.size();
  if (macro.uses_caller) {
    std::optional<Value> caller = take_named(arguments, "caller");
    scope.set("caller", caller ? std::move(*caller) : Value::undefined("No caller defined"));
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = std::move(arguments.positional[i]);
    } else {
      value = take_named(arguments, name);
    }
    if (!value && i >= first_default) {
      BATON_TRY_ASSIGN(value, evaluate(*macro.defaults[i - first_default]));
    }
    if (!value) value = Value::undefined(fmt::format("parameter '{}' was not provided", name));
    scope.set(name, std::move(*value));
  }
  if (macro.uses_kwargs) {
    Dict extra;
    for (auto& [name, value] : arguments.named) extra.set(Value::string(name), std::move(value));
    BATON_TRY_ASSIGN(Value kwargs, make_dict(std::move(extra)));
    scope.set("kwargs", std::move(kwargs));
  } else if (!arguments.named.empty()) {
    if (arguments.named[0].first == "caller") {
      return fail(Code::kInvalidArgument,
                  "macro '{}' was invoked with two values for the special caller argument. This is most likely a bug.",
                  macro.name);
    }
    return fail(Code::kInvalidArgument, "macro '{}' takes no keyword argument '{}'", macro.name,
                arguments.named[0].first);
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) rest.push_back(std::move(arguments.positional[i]));
    BATON_TRY_ASSIGN(Value varargs, make_sequence(Kind::kTuple, std::move(rest)));
    scope.set("varargs", std::move(varargs));
  } else if (arguments.positional.size() > count) {
    return fail(Code::kInvalidArgument, "macro '{}' takes not more than {} argument(s)", macro.name, count);
  }
  return {};
}

Result<Value> Interpreter::call_macro(const MacroClosure& macro, Arguments arguments) {
  DepthGuard guard(*this);
  BATON_TRY(check_depth(guard));
  int line = line_;
  ScopeGuard scope(*this, macro.scope);
  BATON_TRY(bind_macro(*macro.definition, std::move(arguments), scope.scope()));
  BATON_TRY_ASSIGN(std::string text, capture(macro.definition->body));
  line_ = line;
  return make_string(std::move(text));
}

}  // namespace baton::text::jinja
