#include <charconv>

#include "text/chat/jinja/parser_core.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

constexpr int kExpressionNestingMax = 150;

// Counts nested parentheses and the like, so that no template overflows the stack.
class Nesting {
 public:
  explicit Nesting(int& count) : count_(count) { ++count_; }
  ~Nesting() { --count_; }
  bool too_deep() const { return count_ > kExpressionNestingMax; }

 private:
  int& count_;
};

}  // namespace

Result<ExpressionPtr> Parser::parse_tuple(TupleOptions options) {
  int line = current().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) {
      if (!skip_operator(",")) break;
      is_tuple = true;
    }
    const Token& token = current();
    if (token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd || is_operator(")") ||
        is_name("recursive")) {
      break;
    }
    BATON_TRY_ASSIGN(ExpressionPtr item, parse_expression(options.conditional));
    items.push_back(std::move(item));
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (items.empty() && !options.parenthesised) return unexpected("an expression");
  ExpressionPtr tuple = make(ExpressionKind::kTuple, line);
  for (ExpressionPtr& item : items) BATON_TRY(add_child(*tuple, std::move(item)));
  return tuple;
}

Result<ExpressionPtr> Parser::parse_expression(bool conditional) {
  Nesting nesting(nesting_);
  if (nesting.too_deep()) {
    return fail(Code::kInvalidArgument, "line {}: more than {} levels of nesting", current().line,
                kExpressionNestingMax);
  }
  return conditional ? parse_conditional() : parse_or();
}

Result<ExpressionPtr> Parser::parse_conditional() {
  int line = current().line;
  BATON_TRY_ASSIGN(ExpressionPtr value, parse_or());
  while (skip_name("if")) {
    ExpressionPtr whole = make(ExpressionKind::kConditional, line);
    BATON_TRY_ASSIGN(ExpressionPtr condition, parse_or());
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      BATON_TRY_ASSIGN(otherwise, parse_expression());
    }
    BATON_TRY(add_child(*whole, std::move(value)));
    BATON_TRY(add_child(*whole, std::move(condition)));
    BATON_TRY(add_child(*whole, std::move(otherwise)));
    value = std::move(whole);
  }
  return value;
}

Result<ExpressionPtr> Parser::parse_or() {
  int line = current().line;
  BATON_TRY_ASSIGN(ExpressionPtr left, parse_and());
  while (skip_name("or")) {
    BATON_TRY_ASSIGN(ExpressionPtr right, parse_and());
    BATON_TRY_ASSIGN(left, make_unary(ExpressionKind::kOr, line, std::move(left)));
    BATON_TRY(add_child(*left, std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_and() {
  int line = current().line;
  BATON_TRY_ASSIGN(ExpressionPtr left, parse_not());
  while (skip_name("and")) {
    BATON_TRY_ASSIGN(ExpressionPtr right, parse_not());
    BATON_TRY_ASSIGN(left, make_unary(ExpressionKind::kAnd, line, std::move(left)));
    BATON_TRY(add_child(*left, std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_not() {
  int line = current().line;
  int count = 0;
  while (skip_name("not")) ++count;
  BATON_TRY_ASSIGN(ExpressionPtr value, parse_compare());
  for (; count > 0; --count) {
    BATON_TRY_ASSIGN(value, make_unary(ExpressionKind::kNot, line, std::move(value)));
  }
  return value;
}

Result<ExpressionPtr> Parser::parse_compare() {
  static constexpr std::pair<std::string_view, Operator> kComparisons[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  int line = current().line;
  BATON_TRY_ASSIGN(ExpressionPtr first, parse_sum());
  ExpressionPtr whole;
  while (true) {
    std::optional<Operator> op;
    for (const auto& [text, candidate] : kComparisons) {
      if (is_operator(text)) op = candidate;
    }
    if (is_name("in")) op = Operator::kIn;
    if (is_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      take();
      op = Operator::kNotIn;
    }
    if (!op) break;
    take();
    if (whole == nullptr) {
      BATON_TRY_ASSIGN(whole, make_unary(ExpressionKind::kCompare, line, std::move(first)));
    }
    BATON_TRY_ASSIGN(ExpressionPtr operand, parse_sum());
    whole->ops.push_back(*op);
    BATON_TRY(add_child(*whole, std::move(operand)));
  }
  return whole != nullptr ? std::move(whole) : std::move(first);
}

Result<ExpressionPtr> Parser::parse_sum() {
  BATON_TRY_ASSIGN(ExpressionPtr left, parse_concat());
  while (is_operator("+") || is_operator("-")) {
    Token token = take();
    BATON_TRY_ASSIGN(ExpressionPtr right, parse_concat());
    Operator op = token.text == "+" ? Operator::kAdd : Operator::kSubtract;
    BATON_TRY_ASSIGN(left, make_binary(op, token.line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_concat() {
  int line = current().line;
  BATON_TRY_ASSIGN(ExpressionPtr first, parse_product());
  if (!is_operator("~")) return first;
  BATON_TRY_ASSIGN(ExpressionPtr whole, make_unary(ExpressionKind::kConcat, line, std::move(first)));
  while (skip_operator("~")) {
    BATON_TRY_ASSIGN(ExpressionPtr next, parse_product());
    BATON_TRY(add_child(*whole, std::move(next)));
  }
  return whole;
}

Result<ExpressionPtr> Parser::parse_product() {
  static constexpr std::pair<std::string_view, Operator> kProducts[] = {
      {"*", Operator::kMultiply}, {"/", Operator::kDivide}, {"//", Operator::kFloorDivide}, {"%", Operator::kModulo}};
  BATON_TRY_ASSIGN(ExpressionPtr left, parse_power());
  while (true) {
    std::optional<Operator> op;
    for (const auto& [text, candidate] : kProducts) {
      if (is_operator(text)) op = candidate;
    }
    if (!op) return left;
    int line = take().line;
    BATON_TRY_ASSIGN(ExpressionPtr right, parse_power());
    BATON_TRY_ASSIGN(left, make_binary(*op, line, std::move(left), std::move(right)));
  }
}

Result<ExpressionPtr> Parser::parse_power() {
  BATON_TRY_ASSIGN(ExpressionPtr left, parse_unary(true));
  while (is_operator("**")) {
    int line = take().line;
    BATON_TRY_ASSIGN(ExpressionPtr right, parse_unary(true));
    BATON_TRY_ASSIGN(left, make_binary(Operator::kPower, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_unary(bool with_filters) {
  Nesting nesting(nesting_);
  if (nesting.too_deep()) {
    return fail(Code::kInvalidArgument, "line {}: more than {} levels of nesting", current().line,
                kExpressionNestingMax);
  }
  int line = current().line;
  ExpressionPtr node;
  if (is_operator("-") || is_operator("+")) {
    ExpressionKind kind = take().text == "-" ? ExpressionKind::kNegative : ExpressionKind::kPositive;
    BATON_TRY_ASSIGN(ExpressionPtr operand, parse_unary(false));
    BATON_TRY_ASSIGN(node, make_unary(kind, line, std::move(operand)));
  } else {
    BATON_TRY_ASSIGN(node, parse_primary());
  }
  BATON_TRY_ASSIGN(node, parse_postfix(std::move(node)));
  if (!with_filters) return node;
  return parse_filters(std::move(node));
}

Result<ExpressionPtr> Parser::parse_primary() {
  const Token& token = current();
  int line = token.line;
  ExpressionPtr constant = make(ExpressionKind::kConstant, line);
  if (token.kind == TokenKind::kName) {
    std::string name = take().text;
    if (name == "true" || name == "True") {
      constant->constant = Value::boolean(true);
    } else if (name == "false" || name == "False") {
      constant->constant = Value::boolean(false);
    } else if (name == "none" || name == "None") {
      constant->constant = Value::none();
    } else {
      constant->kind = ExpressionKind::kName;
      for (MacroDefinition* macro : macros_) {
        macro->uses_caller |= name == "caller";
        macro->uses_kwargs |= name == "kwargs";
        macro->uses_varargs |= name == "varargs";
      }
      constant->name = std::move(name);
    }
    return constant;
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (current().kind == TokenKind::kString) text += take().text;
    constant->constant = Value::string(std::move(text));
    return constant;
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return parse_number();
  if (skip_operator("(")) {
    BATON_TRY_ASSIGN(ExpressionPtr inner, parse_tuple({.parenthesised = true}));
    BATON_TRY(expect_operator(")"));
    return inner;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  return unexpected("");
}

Result<ExpressionPtr> Parser::parse_number() {
  Token token = take();
  ExpressionPtr constant = make(ExpressionKind::kConstant, token.line);
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    auto [stop, error] = std::from_chars(begin, end, value);
    if (error == std::errc::result_out_of_range) value = std::strtod(token.text.c_str(), nullptr);
    constant->constant = Value::real(value);
    return constant;
  }
  int base = 10;
  if (token.text.size() > 2 && token.text[0] == '0') {
    char prefix = static_cast<char>(token.text[1] | 0x20);
    base = prefix == 'x' ? 16 : (prefix == 'o' ? 8 : (prefix == 'b' ? 2 : 10));
    if (base != 10) begin += 2;
  }
  int64_t value = 0;
  auto [stop, error] = std::from_chars(begin, end, value, base);
  if (error != std::errc() || stop != end) {
    return fail(Code::kInvalidArgument, "line {}: the integer {} is not within 64 bits", token.line, token.text);
  }
  constant->constant = Value::integer(value);
  return constant;
}

Result<ExpressionPtr> Parser::parse_list() {
  ExpressionPtr list = make(ExpressionKind::kList, take().line);
  while (!is_operator("]")) {
    if (!list->children.empty()) BATON_TRY(expect_operator(","));
    if (is_operator("]")) break;
    BATON_TRY_ASSIGN(ExpressionPtr item, parse_expression());
    BATON_TRY(add_child(*list, std::move(item)));
  }
  take();
  return list;
}

Result<ExpressionPtr> Parser::parse_dict() {
  ExpressionPtr dict = make(ExpressionKind::kDict, take().line);
  while (!is_operator("}")) {
    if (!dict->children.empty()) BATON_TRY(expect_operator(","));
    if (is_operator("}")) break;
    BATON_TRY_ASSIGN(ExpressionPtr key, parse_expression());
    BATON_TRY(expect_operator(":"));
    BATON_TRY_ASSIGN(ExpressionPtr value, parse_expression());
    BATON_TRY(add_child(*dict, std::move(key)));
    BATON_TRY(add_child(*dict, std::move(value)));
  }
  take();
  return dict;
}

}  // namespace baton::text::jinja
