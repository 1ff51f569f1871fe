// The tests behind `is`.
#include <array>

#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/operators.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

template <bool (*kHolds)(const Value&)>
Result<bool> test_of_value(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("test", arguments, {}));
  return kHolds(input);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is(Kind::kNone); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_bool(); }
bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.as_bool(); }
bool is_integer(const Value& value) { return value.is(Kind::kInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
// An undefined value can be called, which raises: that is what Jinja's own answers.
bool is_callable(const Value& value) {
  return value.is(Kind::kCallable) || value.is(Kind::kLoop) || value.is_undefined();
}
bool is_escaped(const Value&) { return false; }

bool is_sequence(const Value& value) {
  return value.is_string() || value.is(Kind::kDict) || value.is(Kind::kList) || value.is(Kind::kTuple) ||
         value.is(Kind::kRange) || value.is_undefined();
}

bool is_iterable(const Value& value) {
  return is_sequence(value) || value.is_sequence() || value.is(Kind::kIterator) || value.is(Kind::kLoop);
}

template <Operator kOp>
Result<bool> test_compare(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("test", arguments, {"other"}, 1));
  return apply_compare(in, kOp, input, *bound[0]);
}

Result<bool> test_in(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("in", arguments, {"seq"}, 1));
  return contains(in, *bound[0], input);
}

Result<bool> test_same_as(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("sameas", arguments, {"other"}, 1));
  return input.same_as(*bound[0]);
}

template <int kRest>
Result<bool> test_parity(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("test", arguments, {}));
  BATON_TRY_ASSIGN(Value rest, apply_binary(in, Operator::kModulo, input, Value::integer(2)));
  return equal(rest, Value::integer(kRest));
}

Result<bool> test_divisible_by(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("divisibleby", arguments, {"num"}, 1));
  BATON_TRY_ASSIGN(Value rest, apply_binary(in, Operator::kModulo, input, *bound[0]));
  return equal(rest, Value::integer(0));
}

// str.islower of str(value): cased, and all of it in lower case.
template <bool kUpper>
Result<bool> test_case(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("test", arguments, {}));
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  BATON_TRY_ASSIGN(Value holds, find_string_method(kUpper ? "isupper" : "islower")(in, Value::string(text), arguments));
  return holds.truthy();
}

Result<bool> test_filter(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("filter", arguments, {}));
  return input.is_string() && find_filter(input.as_string()) != nullptr;
}

Result<bool> test_test(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("test", arguments, {}));
  return input.is_string() && find_test(input.as_string()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

constexpr auto kTests = std::to_array<NamedTest>({
    {"defined", test_of_value<is_defined>},
    {"undefined", test_of_value<is_undefined>},
    {"none", test_of_value<is_none>},
    {"boolean", test_of_value<is_boolean>},
    {"true", test_of_value<is_true>},
    {"false", test_of_value<is_false>},
    {"integer", test_of_value<is_integer>},
    {"float", test_of_value<is_float>},
    {"number", test_of_value<is_number>},
    {"string", test_of_value<is_string>},
    {"mapping", test_of_value<is_mapping>},
    {"sequence", test_of_value<is_sequence>},
    {"iterable", test_of_value<is_iterable>},
    {"callable", test_of_value<is_callable>},
    {"escaped", test_of_value<is_escaped>},
    {"odd", test_parity<1>},
    {"even", test_parity<0>},
    {"divisibleby", test_divisible_by},
    {"lower", test_case<false>},
    {"upper", test_case<true>},
    {"filter", test_filter},
    {"test", test_test},
    {"in", test_in},
    {"sameas", test_same_as},
    {"eq", test_compare<Operator::kEqual>},
    {"equalto", test_compare<Operator::kEqual>},
    {"ne", test_compare<Operator::kNotEqual>},
    {"lt", test_compare<Operator::kLess>},
    {"lessthan", test_compare<Operator::kLess>},
    {"le", test_compare<Operator::kLessEqual>},
    {"gt", test_compare<Operator::kGreater>},
    {"greaterthan", test_compare<Operator::kGreater>},
    {"ge", test_compare<Operator::kGreaterEqual>},
});

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

}  // namespace baton::text::jinja
