// The recursive-descent parser; statements in parser_statement.cc, expressions in parser_expression.cc.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/jinja/ast.h"
#include "text/chat/jinja/lexer.h"

namespace baton::text::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<Body> parse_template();

 private:
  using Ends = std::initializer_list<std::string_view>;

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool is_operator(std::string_view op) const { return current().kind == TokenKind::kOperator && current().text == op; }
  bool is_name(std::string_view name) const { return current().kind == TokenKind::kName && current().text == name; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  Result<void> expect_operator(std::string_view op);
  Result<void> expect_block_end();
  Result<std::string> expect_name();
  std::unexpected<Status> unexpected(std::string_view expected) const;
  bool at_one_of(Ends names) const;

  // Statements. parse_body stops at a block tag named in `ends`, with the current token on that name.
  Result<Body> parse_body(Ends ends);
  Result<StatementPtr> parse_statement();
  Result<StatementPtr> parse_if();
  Result<StatementPtr> parse_for();
  Result<StatementPtr> parse_set();
  Result<StatementPtr> parse_macro();
  Result<StatementPtr> parse_call_block();
  Result<StatementPtr> parse_filter_block();
  Result<StatementPtr> parse_generation();
  Result<StatementPtr> parse_with();
  Result<StatementPtr> parse_loop_control();
  Result<StatementPtr> parse_print();
  Result<void> parse_signature(MacroDefinition& macro);
  Result<Body> parse_macro_body(MacroDefinition& macro, std::string_view end);
  Result<void> finish_body(Statement& statement, std::string_view end);
  // members: `namespace.member` is allowed. Stops before "in" and "=".
  Result<Target> parse_target(bool members);
  Result<Target> parse_target_part(bool members);

  // Expressions.
  struct TupleOptions {
    bool conditional = true;  // `a if b else c` may stand in it
    bool parenthesised = false;
  };
  Result<ExpressionPtr> parse_tuple(TupleOptions options);
  Result<ExpressionPtr> parse_expression(bool conditional = true);
  Result<ExpressionPtr> parse_conditional();
  Result<ExpressionPtr> parse_or();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_compare();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concat();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  Result<ExpressionPtr> parse_unary(bool with_filters);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_number();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr base);
  Result<ExpressionPtr> parse_filters(ExpressionPtr base);
  Result<ExpressionPtr> parse_attribute(ExpressionPtr base);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr base);
  Result<ExpressionPtr> parse_subscript_item(bool& is_slice, std::vector<ExpressionPtr>& parts);
  Result<ExpressionPtr> parse_call(ExpressionPtr callee);
  Result<ExpressionPtr> parse_filter(ExpressionPtr base);
  Result<ExpressionPtr> parse_test(ExpressionPtr base);
  Result<std::vector<Argument>> parse_arguments();
  Result<std::string> parse_dotted_name();

  ExpressionPtr make(ExpressionKind kind, int line) const;
  // Appends the child and keeps the depth; too deep a tree is an error.
  Result<void> add_child(Expression& parent, ExpressionPtr child) const;
  Result<ExpressionPtr> make_unary(ExpressionKind kind, int line, ExpressionPtr child) const;
  Result<ExpressionPtr> make_binary(Operator op, int line, ExpressionPtr left, ExpressionPtr right) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;                       // of statements and expressions, bounded
  int loops_ = 0;                         // for statements around the current one, within one macro
  std::vector<MacroDefinition*> macros_;  // being parsed, innermost last
};

}  // namespace baton::text::jinja
