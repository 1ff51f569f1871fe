#include "text/chat/jinja/interpreter_guards.h"
#include "text/chat/jinja/operators.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

Value Interpreter::lookup(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* value = scope->find_here(name)) return *value;
  }
  if (NativeFunction function = find_global(name)) return make_method(name, function, Value::none());
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Interpreter::evaluate(const Expression& expression) {
  DepthGuard guard(*this);
  BATON_TRY(check_depth(guard));
  BATON_TRY(spend_steps(1));
  line_ = expression.line;
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.constant;
    case ExpressionKind::kName:
      for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
        BATON_TRY(spend_steps(names_cost(scope->variables.size())));
      }
      return lookup(expression.name);
    case ExpressionKind::kList:
      return evaluate_items(expression, Kind::kList);
    case ExpressionKind::kTuple:
      return evaluate_items(expression, Kind::kTuple);
    case ExpressionKind::kDict:
      return evaluate_dict(expression);
    case ExpressionKind::kAttribute: {
      BATON_TRY_ASSIGN(Value object, evaluate(*expression.children[0]));
      return get_attribute(object, expression.name);
    }
    case ExpressionKind::kSubscript:
      return evaluate_subscript(expression);
    case ExpressionKind::kSlice:
      return evaluate_slice(expression);
    case ExpressionKind::kCall:
      return evaluate_call(expression, nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(expression, nullptr);
    case ExpressionKind::kTest:
      return evaluate_test(expression);
    case ExpressionKind::kNot:
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return evaluate_logic(expression);
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive: {
      BATON_TRY_ASSIGN(Value operand, evaluate(*expression.children[0]));
      return apply_sign(expression.kind == ExpressionKind::kNegative, operand);
    }
    case ExpressionKind::kBinary:
      return evaluate_binary(expression);
    case ExpressionKind::kConcat:
      return evaluate_concat(expression);
    case ExpressionKind::kCompare:
      return evaluate_compare(expression);
    case ExpressionKind::kConditional:
      return evaluate_conditional(expression);
  }
  return Value();
}

Result<Value> Interpreter::evaluate_items(const Expression& expression, Kind kind) {
  std::vector<Value> items;
  items.reserve(expression.children.size());
  for (const ExpressionPtr& child : expression.children) {
    BATON_TRY_ASSIGN(Value item, evaluate(*child));
    items.push_back(std::move(item));
  }
  return make_sequence(kind, std::move(items));
}

Result<Value> Interpreter::evaluate_dict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    BATON_TRY_ASSIGN(Value key, evaluate(*expression.children[i]));
    BATON_TRY_ASSIGN(Value value, evaluate(*expression.children[i + 1]));
    if (!hashable(key)) return fail(Code::kInvalidArgument, "unhashable type: '{}'", type_name(key));
    dict.set(std::move(key), std::move(value));
  }
  return make_dict(std::move(dict));
}

Result<Value> Interpreter::evaluate_logic(const Expression& expression) {
  BATON_TRY_ASSIGN(Value left, evaluate(*expression.children[0]));
  bool truth = left.truthy();
  if (expression.kind == ExpressionKind::kNot) return Value::boolean(!truth);
  if (truth == (expression.kind == ExpressionKind::kOr)) return left;
  return evaluate(*expression.children[1]);
}

Result<Value> Interpreter::evaluate_binary(const Expression& expression) {
  BATON_TRY_ASSIGN(Value left, evaluate(*expression.children[0]));
  BATON_TRY_ASSIGN(Value right, evaluate(*expression.children[1]));
  return apply_binary(*this, expression.op, left, right);
}

Result<Value> Interpreter::evaluate_concat(const Expression& expression) {
  std::string text;
  for (const ExpressionPtr& child : expression.children) {
    BATON_TRY_ASSIGN(Value part, evaluate(*child));
    BATON_TRY(append_str(text, part, text_limit()));
  }
  return make_string(std::move(text));
}

Result<Value> Interpreter::evaluate_compare(const Expression& expression) {
  BATON_TRY_ASSIGN(Value left, evaluate(*expression.children[0]));
  for (size_t i = 0; i < expression.ops.size(); ++i) {
    BATON_TRY_ASSIGN(Value right, evaluate(*expression.children[i + 1]));
    BATON_TRY_ASSIGN(bool holds, apply_compare(*this, expression.ops[i], left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_conditional(const Expression& expression) {
  BATON_TRY_ASSIGN(Value condition, evaluate(*expression.children[1]));
  if (condition.truthy()) return evaluate(*expression.children[0]);
  if (expression.children[2] != nullptr) return evaluate(*expression.children[2]);
  return Value::undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", expression.line));
}

Result<Value> Interpreter::evaluate_subscript(const Expression& expression) {
  BATON_TRY_ASSIGN(Value object, evaluate(*expression.children[0]));
  BATON_TRY_ASSIGN(Value key, evaluate(*expression.children[1]));
  return get_item(object, key);
}

Result<Value> Interpreter::evaluate_slice(const Expression& expression) {
  BATON_TRY_ASSIGN(Value object, evaluate(*expression.children[0]));
  Value parts[3] = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 3; ++i) {
    if (expression.children[i + 1] == nullptr) continue;
    BATON_TRY_ASSIGN(parts[i], evaluate(*expression.children[i + 1]));
  }
  return get_slice(object, parts[0], parts[1], parts[2]);
}

Result<Arguments> Interpreter::evaluate_arguments(const std::vector<Argument>& arguments) {
  Arguments values;
  for (const Argument& argument : arguments) {
    BATON_TRY_ASSIGN(Value value, evaluate(*argument.value));
    if (argument.form == Argument::Form::kPositional) {
      values.positional.push_back(std::move(value));
    } else if (argument.form == Argument::Form::kNamed) {
      values.named.emplace_back(argument.name, std::move(value));
    } else if (argument.form == Argument::Form::kStar) {
      BATON_TRY_ASSIGN(std::vector<Value> items, iterate(value));
      for (Value& item : items) values.positional.push_back(std::move(item));
    } else {
      if (!value.is(Kind::kDict)) {
        return fail(Code::kInvalidArgument, "argument after ** must be a mapping, not {}", type_name(value));
      }
      for (const auto& [key, item] : value.as_dict().entries) {
        if (!key.is_string()) return fail(Code::kInvalidArgument, "keywords must be strings");
        values.named.emplace_back(key.as_string(), item);
      }
    }
  }
  return values;
}

Result<Value> Interpreter::evaluate_call(const Expression& expression, const Value* caller) {
  BATON_TRY_ASSIGN(Value callee, evaluate(*expression.children[0]));
  BATON_TRY_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return call(callee, std::move(arguments));
}

Result<Value> Interpreter::evaluate_filter(const Expression& expression, const Value* input) {
  Value value;
  const Expression* inner = expression.children[0].get();
  if (inner == nullptr) {
    value = input != nullptr ? *input : Value();
  } else if (inner->kind == ExpressionKind::kFilter) {
    BATON_TRY_ASSIGN(value, evaluate_filter(*inner, input));
  } else {
    BATON_TRY_ASSIGN(value, evaluate(*inner));
  }
  BATON_TRY_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments));
  BATON_TRY(spend_steps(1));
  line_ = expression.line;
  return find_filter(expression.name)(*this, value, arguments);
}

Result<Value> Interpreter::evaluate_test(const Expression& expression) {
  BATON_TRY_ASSIGN(Value value, evaluate(*expression.children[0]));
  BATON_TRY_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments));
  line_ = expression.line;
  BATON_TRY_ASSIGN(bool holds, find_test(expression.name)(*this, value, arguments));
  return Value::boolean(holds);
}

}  // namespace baton::text::jinja
