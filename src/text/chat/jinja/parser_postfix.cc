// What may follow a primary expression: attributes, subscripts, calls, filters and tests.
#include <charconv>

#include "text/chat/jinja/parser_core.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

Result<ExpressionPtr> Parser::parse_postfix(ExpressionPtr base) {
  while (true) {
    if (is_operator(".")) {
      BATON_TRY_ASSIGN(base, parse_attribute(std::move(base)));
    } else if (is_operator("[")) {
      BATON_TRY_ASSIGN(base, parse_subscript(std::move(base)));
    } else if (is_operator("(")) {
      BATON_TRY_ASSIGN(base, parse_call(std::move(base)));
    } else {
      return base;
    }
  }
}

Result<ExpressionPtr> Parser::parse_filters(ExpressionPtr base) {
  while (true) {
    if (is_operator("|")) {
      BATON_TRY_ASSIGN(base, parse_filter(std::move(base)));
    } else if (is_name("is")) {
      BATON_TRY_ASSIGN(base, parse_test(std::move(base)));
    } else if (is_operator("(")) {
      BATON_TRY_ASSIGN(base, parse_call(std::move(base)));
    } else {
      return base;
    }
  }
}

Result<ExpressionPtr> Parser::parse_attribute(ExpressionPtr base) {
  int line = take().line;
  if (current().kind == TokenKind::kName) {
    BATON_TRY_ASSIGN(ExpressionPtr node, make_unary(ExpressionKind::kAttribute, line, std::move(base)));
    node->name = take().text;
    return node;
  }
  if (current().kind != TokenKind::kInteger) return unexpected("name or number");
  BATON_TRY_ASSIGN(ExpressionPtr node, make_unary(ExpressionKind::kSubscript, line, std::move(base)));
  BATON_TRY_ASSIGN(ExpressionPtr index, parse_number());
  BATON_TRY(add_child(*node, std::move(index)));
  return node;
}

// One of the comma-separated parts of a subscript. A slice leaves its three parts (null where absent) in `parts`.
Result<ExpressionPtr> Parser::parse_subscript_item(bool& is_slice, std::vector<ExpressionPtr>& parts) {
  ExpressionPtr first;
  is_slice = false;
  if (!is_operator(":")) {
    BATON_TRY_ASSIGN(first, parse_expression());
    if (!is_operator(":")) return first;
  }
  is_slice = true;
  parts.push_back(std::move(first));
  while (parts.size() < 3 && skip_operator(":")) {
    ExpressionPtr part;
    if (!is_operator(":") && !is_operator("]") && !is_operator(",")) {
      BATON_TRY_ASSIGN(part, parse_expression());
    }
    parts.push_back(std::move(part));
  }
  parts.resize(3);
  return ExpressionPtr();
}

Result<ExpressionPtr> Parser::parse_subscript(ExpressionPtr base) {
  int line = take().line;
  bool is_slice = false;
  std::vector<ExpressionPtr> slice;
  BATON_TRY_ASSIGN(ExpressionPtr index, parse_subscript_item(is_slice, slice));
  if (is_operator(",")) {
    if (is_slice) return unexpected("']' (a slice can't be part of a tuple)");
    BATON_TRY_ASSIGN(index, make_unary(ExpressionKind::kTuple, line, std::move(index)));
    while (skip_operator(",")) {
      if (is_operator("]")) break;
      BATON_TRY_ASSIGN(ExpressionPtr item, parse_expression());
      BATON_TRY(add_child(*index, std::move(item)));
    }
  }
  BATON_TRY(expect_operator("]"));
  ExpressionKind kind = is_slice ? ExpressionKind::kSlice : ExpressionKind::kSubscript;
  BATON_TRY_ASSIGN(ExpressionPtr node, make_unary(kind, line, std::move(base)));
  if (!is_slice) {
    BATON_TRY(add_child(*node, std::move(index)));
    return node;
  }
  for (ExpressionPtr& part : slice) BATON_TRY(add_child(*node, std::move(part)));
  return node;
}

Result<std::vector<Argument>> Parser::parse_arguments() {
  BATON_TRY(expect_operator("("));
  std::vector<Argument> arguments;
  bool named = false;
  while (!is_operator(")")) {
    if (!arguments.empty()) BATON_TRY(expect_operator(","));
    if (is_operator(")")) break;
    Argument argument;
    if (skip_operator("**")) {
      argument.form = Argument::Form::kDoubleStar;
    } else if (skip_operator("*")) {
      argument.form = Argument::Form::kStar;
    } else if (current().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
      argument.form = Argument::Form::kNamed;
      argument.name = take().text;
      take();
    } else if (named) {
      return fail(Code::kInvalidArgument, "line {}: invalid syntax for function call expression", current().line);
    }
    named |= argument.form == Argument::Form::kNamed || argument.form == Argument::Form::kDoubleStar;
    BATON_TRY_ASSIGN(argument.value, parse_expression());
    arguments.push_back(std::move(argument));
  }
  take();
  return arguments;
}

Result<ExpressionPtr> Parser::parse_call(ExpressionPtr callee) {
  int line = current().line;
  BATON_TRY_ASSIGN(ExpressionPtr node, make_unary(ExpressionKind::kCall, line, std::move(callee)));
  BATON_TRY_ASSIGN(node->arguments, parse_arguments());
  for (const Argument& argument : node->arguments) node->depth = std::max(node->depth, argument.value->depth + 1);
  return node;
}

Result<std::string> Parser::parse_dotted_name() {
  BATON_TRY_ASSIGN(std::string name, expect_name());
  while (skip_operator(".")) {
    BATON_TRY_ASSIGN(std::string part, expect_name());
    name += "." + part;
  }
  return name;
}

Result<ExpressionPtr> Parser::parse_filter(ExpressionPtr base) {
  int line = take().line;  // "|"
  BATON_TRY_ASSIGN(ExpressionPtr node, make_unary(ExpressionKind::kFilter, line, std::move(base)));
  BATON_TRY_ASSIGN(node->name, parse_dotted_name());
  if (find_filter(node->name) == nullptr) {
    return fail(Code::kInvalidArgument, "line {}: No filter named '{}'.", line, node->name);
  }
  if (is_operator("(")) {
    BATON_TRY_ASSIGN(node->arguments, parse_arguments());
  }
  for (const Argument& argument : node->arguments) node->depth = std::max(node->depth, argument.value->depth + 1);
  return node;
}

Result<ExpressionPtr> Parser::parse_test(ExpressionPtr base) {
  int line = take().line;  // "is"
  bool negated = skip_name("not");
  BATON_TRY_ASSIGN(ExpressionPtr node, make_unary(ExpressionKind::kTest, line, std::move(base)));
  BATON_TRY_ASSIGN(node->name, parse_dotted_name());
  if (find_test(node->name) == nullptr) {
    return fail(Code::kInvalidArgument, "line {}: No test named '{}'.", line, node->name);
  }
  TokenKind next = current().kind;
  bool value_follows = next == TokenKind::kName || next == TokenKind::kString || next == TokenKind::kInteger ||
                       next == TokenKind::kFloat || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    BATON_TRY_ASSIGN(node->arguments, parse_arguments());
  } else if (value_follows && !at_one_of({"else", "or", "and", "is"})) {
    BATON_TRY_ASSIGN(ExpressionPtr operand, parse_primary());
    BATON_TRY_ASSIGN(operand, parse_postfix(std::move(operand)));
    Argument argument;
    argument.value = std::move(operand);
    node->arguments.push_back(std::move(argument));
  } else if (is_name("is")) {
    return fail(Code::kInvalidArgument, "line {}: You cannot chain multiple tests with is", line);
  }
  for (const Argument& argument : node->arguments) node->depth = std::max(node->depth, argument.value->depth + 1);
  if (!negated) return node;
  return make_unary(ExpressionKind::kNot, line, std::move(node));
}

}  // namespace baton::text::jinja
