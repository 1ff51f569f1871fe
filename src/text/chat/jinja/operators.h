// Python's binary and unary operators. Errors are worded as Python's and Jinja2's exceptions are.
#pragma once

#include "text/chat/jinja/ast.h"
#include "text/chat/jinja/interpreter.h"

namespace baton::text::jinja {

Result<Value> apply_binary(Interpreter& interpreter, Operator op, const Value& left, const Value& right);
Result<Value> apply_sign(bool negative, const Value& operand);
Result<bool> apply_compare(Interpreter& interpreter, Operator op, const Value& left, const Value& right);
Result<bool> contains(Interpreter& interpreter, const Value& container, const Value& item);
// "%s and %d" % arguments.
Result<Value> format_percent(Interpreter& interpreter, std::string_view format, const Value& arguments);
// str.format.
Result<Value> format_braces(Interpreter& interpreter, std::string_view format, const Arguments& arguments);

}  // namespace baton::text::jinja
