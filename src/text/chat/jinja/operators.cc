#include "text/chat/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/chat/jinja/py_string.h"

namespace baton::text::jinja {

namespace {

std::string_view symbol(Operator op) {
  static constexpr std::string_view kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

std::unexpected<Status> unsupported(Operator op, const Value& left, const Value& right) {
  return fail(Code::kInvalidArgument, "unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(left),
              type_name(right));
}

std::unexpected<Status> too_big(Operator op) {
  return fail(Code::kOutOfRange, "the result of {} is not within 64 bits", symbol(op));
}

Result<Value> joined_sequence(Interpreter& interpreter, const Value& left, const Value& right) {
  std::vector<Value> items = left.as_sequence().items;
  const std::vector<Value>& more = right.as_sequence().items;
  items.insert(items.end(), more.begin(), more.end());
  return interpreter.make_sequence(left.kind(), std::move(items));
}

Result<Value> add_containers(Interpreter& interpreter, const Value& left, const Value& right) {
  bool left_joins = left.is_string() || left.is(Kind::kList) || left.is(Kind::kTuple);
  if (!left_joins) return unsupported(Operator::kAdd, left, right);
  if (left.kind() != right.kind()) {
    return fail(Code::kInvalidArgument, "can only concatenate {} (not \"{}\") to {}", type_name(left), type_name(right),
                type_name(left));
  }
  if (left.is_string()) return interpreter.make_string(left.as_string() + right.as_string());
  return joined_sequence(interpreter, left, right);
}

Result<Value> repeat(Interpreter& interpreter, const Value& what, int64_t times) {
  auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (what.is_string()) {
    const std::string& unit = what.as_string();
    if (!unit.empty() && count > interpreter.limits().text_bytes_max / unit.size()) {
      return fail(Code::kOutOfRange, "the text grows beyond {} bytes", interpreter.limits().text_bytes_max);
    }
    std::string text;
    if (!unit.empty()) {
      text.reserve(unit.size() * count);
      for (size_t i = 0; i < count; ++i) text += unit;
    }
    return interpreter.make_string(std::move(text));
  }
  const std::vector<Value>& unit = what.as_sequence().items;
  if (!unit.empty() && count > interpreter.limits().text_bytes_max / sizeof(Value) / unit.size()) {
    return fail(Code::kOutOfRange, "a list grows too long");
  }
  std::vector<Value> items;
  if (!unit.empty()) {
    for (size_t i = 0; i < count; ++i) items.insert(items.end(), unit.begin(), unit.end());
  }
  return interpreter.make_sequence(what.kind(), std::move(items));
}

bool repeatable(const Value& value) { return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple); }

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return fail(Code::kInvalidArgument, "0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return too_big(Operator::kPower);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_big(Operator::kPower);
  }
  return Value::integer(result);
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Result<Value> integer_operation(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return too_big(op);
      return Value::integer(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return too_big(op);
      return Value::integer(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return too_big(op);
      return Value::integer(result);
    case Operator::kDivide:
      if (b == 0) return fail(Code::kInvalidArgument, "division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
      if (b == 0) return fail(Code::kInvalidArgument, "integer division or modulo by zero");
      if (b == -1 && a == INT64_MIN) return too_big(op);
      return Value::integer(a / b - ((a % b != 0 && (a % b < 0) != (b < 0)) ? 1 : 0));
    case Operator::kModulo:
      if (b == 0) return fail(Code::kInvalidArgument, "integer modulo by zero");
      return Value::integer(floor_mod(a, b));
    default:
      return integer_power(a, b);
  }
}

double float_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Result<Value> float_operation(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kDivide:
      if (b == 0) return fail(Code::kInvalidArgument, "float division by zero");
      return Value::real(a / b);
    case Operator::kFloorDivide:
      if (b == 0) return fail(Code::kInvalidArgument, "float floor division by zero");
      return Value::real(std::round((a - float_mod(a, b)) / b));
    case Operator::kModulo:
      if (b == 0) return fail(Code::kInvalidArgument, "float modulo");
      return Value::real(float_mod(a, b));
    default:
      if (a == 0 && b < 0) return fail(Code::kInvalidArgument, "0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) return fail(Code::kInvalidArgument, "the power is a complex number");
      return Value::real(std::pow(a, b));
  }
}

}  // namespace

Result<Value> apply_binary(Interpreter& interpreter, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kModulo && left.is_string()) return format_percent(interpreter, left.as_string(), right);
  if (left.is_undefined()) return fail(Code::kInvalidArgument, "{}", left.undefined_message());
  if (right.is_undefined()) return fail(Code::kInvalidArgument, "{}", right.undefined_message());
  if (left.is_integral() && right.is_integral()) return integer_operation(op, left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return float_operation(op, left.as_double(), right.as_double());
  if (op == Operator::kAdd) return add_containers(interpreter, left, right);
  if (op == Operator::kMultiply) {
    if (repeatable(left) && right.is_integral()) return repeat(interpreter, left, right.as_int());
    if (repeatable(right) && left.is_integral()) return repeat(interpreter, right, left.as_int());
    if (repeatable(left) || repeatable(right)) {
      return fail(Code::kInvalidArgument, "can't multiply sequence by non-int of type '{}'",
                  type_name(repeatable(left) ? right : left));
    }
  }
  return unsupported(op, left, right);
}

Result<Value> apply_sign(bool negative, const Value& operand) {
  if (operand.is_undefined()) return fail(Code::kInvalidArgument, "{}", operand.undefined_message());
  if (operand.is(Kind::kFloat)) return Value::real(negative ? -operand.as_double() : operand.as_double());
  if (!operand.is_integral()) {
    return fail(Code::kInvalidArgument, "bad operand type for unary {}: '{}'", negative ? '-' : '+',
                type_name(operand));
  }
  if (!negative) return Value::integer(operand.as_int());
  if (operand.as_int() == INT64_MIN) return too_big(Operator::kSubtract);
  return Value::integer(-operand.as_int());
}

Result<bool> contains(Interpreter& interpreter, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return fail(Code::kInvalidArgument, "'in <string>' requires string as left operand, not {}", type_name(item));
    }
    BATON_TRY(interpreter.spend_steps(static_cast<int64_t>(container.as_string().size() / 64)));
    return find_from(container.as_string(), item.as_string(), 0) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) {
    if (!hashable(item)) return fail(Code::kInvalidArgument, "unhashable type: '{}'", type_name(item));
    return container.as_dict().find(item) != nullptr;
  }
  if (container.is_sequence()) {
    const std::vector<Value>& items = container.as_sequence().items;
    BATON_TRY(interpreter.spend_steps(static_cast<int64_t>(items.size())));
    return std::any_of(items.begin(), items.end(), [&](const Value& one) { return equal(one, item); });
  }
  if (container.is(Kind::kIterator)) {
    IteratorState& state = container.as_iterator();
    while (state.next < state.items.size()) {
      BATON_TRY(interpreter.spend_steps(1));
      if (equal(state.items[state.next++], item)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return fail(Code::kInvalidArgument, "argument of type '{}' is not iterable", type_name(container));
}

Result<bool> apply_compare(Interpreter& interpreter, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kEqual) return equal(left, right);
  if (op == Operator::kNotEqual) return !equal(left, right);
  if (op == Operator::kIn) return contains(interpreter, right, left);
  if (op == Operator::kNotIn) {
    BATON_TRY_ASSIGN(bool found, contains(interpreter, right, left));
    return !found;
  }
  bool nan = (left.is(Kind::kFloat) && std::isnan(left.as_double())) ||
             (right.is(Kind::kFloat) && std::isnan(right.as_double()));
  BATON_TRY_ASSIGN(int order, compare(left, right, symbol(op)));
  if (nan) return false;
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace baton::text::jinja
