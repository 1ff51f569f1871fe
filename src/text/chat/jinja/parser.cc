#include "text/chat/jinja/parser.h"

#include "text/chat/jinja/parser_core.h"

namespace baton::text::jinja {

bool Parser::skip_operator(std::string_view op) {
  if (!is_operator(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

bool Parser::at_one_of(Ends names) const {
  for (std::string_view name : names) {
    if (is_name(name)) return true;
  }
  return false;
}

std::unexpected<Status> Parser::unexpected(std::string_view expected) const {
  const Token& token = current();
  std::string shown = token.kind == TokenKind::kEnd ? "end of template" : fmt::format("'{}'", token.text.substr(0, 60));
  if (expected.empty()) return fail(Code::kInvalidArgument, "line {}: unexpected {}", token.line, shown);
  return fail(Code::kInvalidArgument, "line {}: expected {}, got {}", token.line, expected, shown);
}

Result<void> Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) return unexpected(fmt::format("'{}'", op));
  return {};
}

Result<void> Parser::expect_block_end() {
  if (current().kind != TokenKind::kBlockEnd) return unexpected("end of statement block");
  take();
  return {};
}

Result<std::string> Parser::expect_name() {
  if (current().kind != TokenKind::kName) return unexpected("a name");
  return take().text;
}

ExpressionPtr Parser::make(ExpressionKind kind, int line) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = line;
  return expression;
}

Result<void> Parser::add_child(Expression& parent, ExpressionPtr child) const {
  constexpr int kDepthMax = 300;
  if (child != nullptr) {
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kDepthMax) {
      return fail(Code::kInvalidArgument, "line {}: an expression more than {} levels deep", parent.line, kDepthMax);
    }
  }
  parent.children.push_back(std::move(child));
  return {};
}

Result<ExpressionPtr> Parser::make_unary(ExpressionKind kind, int line, ExpressionPtr child) const {
  ExpressionPtr expression = make(kind, line);
  BATON_TRY(add_child(*expression, std::move(child)));
  return expression;
}

Result<ExpressionPtr> Parser::make_binary(Operator op, int line, ExpressionPtr left, ExpressionPtr right) const {
  ExpressionPtr expression = make(ExpressionKind::kBinary, line);
  expression->op = op;
  BATON_TRY(add_child(*expression, std::move(left)));
  BATON_TRY(add_child(*expression, std::move(right)));
  return expression;
}

Result<Body> Parser::parse_template() { return parse_body({}); }

Result<Body> parse(std::string_view source) {
  BATON_TRY_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).parse_template();
}

}  // namespace baton::text::jinja
