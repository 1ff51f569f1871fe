#include "text/chat/jinja/parser_core.h"

namespace baton::text::jinja {

namespace {

constexpr int kNestingMax = 150;

StatementPtr make_statement(StatementKind kind, int line) {
  auto statement = std::make_unique<Statement>();
  statement->kind = kind;
  statement->line = line;
  return statement;
}

std::string describe_ends(std::initializer_list<std::string_view> ends) {
  std::string text;
  for (std::string_view end : ends) text += fmt::format("{}'{}'", text.empty() ? "" : " or ", end);
  return text;
}

}  // namespace

Result<Body> Parser::parse_body(Ends ends) {
  if (++nesting_ > kNestingMax) {
    return fail(Code::kInvalidArgument, "line {}: blocks more than {} levels deep", current().line, kNestingMax);
  }
  Body body;
  while (true) {
    const Token& token = current();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() > 0) {
        return fail(Code::kInvalidArgument, "line {}: Unexpected end of template. Expected the tag {}", token.line,
                    describe_ends(ends));
      }
      break;
    }
    if (token.kind == TokenKind::kData) {
      body.push_back(make_statement(StatementKind::kText, token.line));
      body.back()->text = std::make_shared<const std::string>(take().text);
    } else if (token.kind == TokenKind::kVariableBegin) {
      body.push_back(make_statement(StatementKind::kOutput, take().line));
      BATON_TRY_ASSIGN(body.back()->expression, parse_tuple({}));
      if (current().kind != TokenKind::kVariableEnd) return unexpected("end of print statement");
      take();
    } else {
      take();  // the block's begin
      if (at_one_of(ends)) break;
      BATON_TRY_ASSIGN(StatementPtr statement, parse_statement());
      body.push_back(std::move(statement));
    }
  }
  --nesting_;
  return body;
}

Result<StatementPtr> Parser::parse_statement() {
  if (current().kind != TokenKind::kName) return unexpected("tag name");
  if (is_name("if")) return parse_if();
  if (is_name("for")) return parse_for();
  if (is_name("set")) return parse_set();
  if (is_name("macro")) return parse_macro();
  if (is_name("call")) return parse_call_block();
  if (is_name("filter")) return parse_filter_block();
  if (is_name("generation")) return parse_generation();
  if (is_name("with")) return parse_with();
  if (is_name("break") || is_name("continue")) return parse_loop_control();
  if (is_name("print")) return parse_print();
  for (std::string_view known : {"block", "extends", "include", "import", "from", "autoescape"}) {
    if (is_name(known)) {
      return fail(Code::kInvalidArgument,
                  "line {}: the tag '{}' has no meaning in a chat template (one source, no loader)", current().line,
                  known);
    }
  }
  return fail(Code::kInvalidArgument, "line {}: Encountered unknown tag '{}'.", current().line, current().text);
}

// Parses to the tag `end` and eats that tag.
Result<void> Parser::finish_body(Statement& statement, std::string_view end) {
  BATON_TRY_ASSIGN(statement.body, parse_body({end}));
  take();
  return expect_block_end();
}

Result<StatementPtr> Parser::parse_if() {
  StatementPtr statement = make_statement(StatementKind::kIf, current().line);
  bool is_else = false;
  while (true) {
    Branch branch;
    take();  // if, elif or else
    if (!is_else) {
      BATON_TRY_ASSIGN(branch.condition, parse_tuple({.conditional = false}));
    }
    BATON_TRY(expect_block_end());
    if (is_else) {
      BATON_TRY_ASSIGN(branch.body, parse_body({"endif"}));
    } else {
      BATON_TRY_ASSIGN(branch.body, parse_body({"elif", "else", "endif"}));
    }
    statement->branches.push_back(std::move(branch));
    if (is_name("endif")) break;
    is_else = is_name("else");
  }
  take();
  BATON_TRY(expect_block_end());
  return statement;
}

Result<StatementPtr> Parser::parse_for() {
  StatementPtr statement = make_statement(StatementKind::kFor, take().line);
  BATON_TRY_ASSIGN(statement->target, parse_target(false));
  if (!skip_name("in")) return unexpected("'in'");
  BATON_TRY_ASSIGN(statement->expression, parse_tuple({.conditional = false}));
  if (skip_name("if")) {
    BATON_TRY_ASSIGN(statement->condition, parse_expression());
  }
  statement->recursive = skip_name("recursive");
  BATON_TRY(expect_block_end());
  ++loops_;
  BATON_TRY_ASSIGN(statement->body, parse_body({"endfor", "else"}));
  --loops_;
  if (skip_name("else")) {
    BATON_TRY(expect_block_end());
    BATON_TRY_ASSIGN(statement->else_body, parse_body({"endfor"}));
  }
  take();
  BATON_TRY(expect_block_end());
  return statement;
}

Result<StatementPtr> Parser::parse_set() {
  StatementPtr statement = make_statement(StatementKind::kSet, take().line);
  BATON_TRY_ASSIGN(statement->target, parse_target(true));
  if (skip_operator("=")) {
    BATON_TRY_ASSIGN(statement->expression, parse_tuple({}));
    BATON_TRY(expect_block_end());
    return statement;
  }
  statement->kind = StatementKind::kSetBlock;
  while (is_operator("|")) {
    BATON_TRY_ASSIGN(statement->filters, parse_filter(std::move(statement->filters)));
  }
  BATON_TRY(expect_block_end());
  BATON_TRY(finish_body(*statement, "endset"));
  return statement;
}

Result<void> Parser::parse_signature(MacroDefinition& macro) {
  BATON_TRY(expect_operator("("));
  while (!is_operator(")")) {
    if (!macro.parameters.empty()) BATON_TRY(expect_operator(","));
    if (is_operator(")")) break;
    BATON_TRY_ASSIGN(std::string name, expect_name());
    macro.parameters.push_back(std::move(name));
    if (skip_operator("=")) {
      BATON_TRY_ASSIGN(ExpressionPtr value, parse_expression());
      macro.defaults.push_back(std::move(value));
    } else if (!macro.defaults.empty()) {
      return fail(Code::kInvalidArgument, "line {}: non-default argument follows default argument", current().line);
    }
  }
  take();
  return {};
}

Result<Body> Parser::parse_macro_body(MacroDefinition& macro, std::string_view end) {
  int outer_loops = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  BATON_TRY_ASSIGN(Body body, parse_body({end}));
  macros_.pop_back();
  loops_ = outer_loops;
  take();
  BATON_TRY(expect_block_end());
  return body;
}

Result<StatementPtr> Parser::parse_macro() {
  StatementPtr statement = make_statement(StatementKind::kMacro, take().line);
  statement->macro = std::make_unique<MacroDefinition>();
  BATON_TRY_ASSIGN(statement->macro->name, expect_name());
  BATON_TRY(parse_signature(*statement->macro));
  BATON_TRY(expect_block_end());
  BATON_TRY_ASSIGN(statement->macro->body, parse_macro_body(*statement->macro, "endmacro"));
  return statement;
}

Result<StatementPtr> Parser::parse_call_block() {
  StatementPtr statement = make_statement(StatementKind::kCallBlock, take().line);
  statement->macro = std::make_unique<MacroDefinition>();
  statement->macro->name = "caller";
  if (is_operator("(")) BATON_TRY(parse_signature(*statement->macro));
  BATON_TRY_ASSIGN(statement->expression, parse_expression());
  if (statement->expression->kind != ExpressionKind::kCall) {
    return fail(Code::kInvalidArgument, "line {}: expected call", statement->line);
  }
  BATON_TRY(expect_block_end());
  BATON_TRY_ASSIGN(statement->macro->body, parse_macro_body(*statement->macro, "endcall"));
  return statement;
}

Result<StatementPtr> Parser::parse_filter_block() {
  StatementPtr statement = make_statement(StatementKind::kFilterBlock, current().line);
  BATON_TRY_ASSIGN(statement->filters, parse_filter(nullptr));  // eats "filter" as it would eat "|"
  while (is_operator("|")) {
    BATON_TRY_ASSIGN(statement->filters, parse_filter(std::move(statement->filters)));
  }
  BATON_TRY(expect_block_end());
  BATON_TRY(finish_body(*statement, "endfilter"));
  return statement;
}

// The part of a conversation that the model generated; only training reads the mark.
Result<StatementPtr> Parser::parse_generation() {
  StatementPtr statement = make_statement(StatementKind::kScope, take().line);
  BATON_TRY(expect_block_end());
  int outer_loops = std::exchange(loops_, 0);
  BATON_TRY(finish_body(*statement, "endgeneration"));
  loops_ = outer_loops;
  return statement;
}

Result<StatementPtr> Parser::parse_with() {
  StatementPtr statement = make_statement(StatementKind::kWith, take().line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->targets.empty()) BATON_TRY(expect_operator(","));
    BATON_TRY_ASSIGN(Target target, parse_target_part(false));
    BATON_TRY(expect_operator("="));
    BATON_TRY_ASSIGN(ExpressionPtr value, parse_expression());
    statement->targets.push_back(std::move(target));
    statement->values.push_back(std::move(value));
  }
  BATON_TRY(expect_block_end());
  BATON_TRY(finish_body(*statement, "endwith"));
  return statement;
}

Result<StatementPtr> Parser::parse_loop_control() {
  Token token = take();
  if (loops_ == 0) return fail(Code::kInvalidArgument, "line {}: '{}' outside of a loop", token.line, token.text);
  BATON_TRY(expect_block_end());
  return make_statement(token.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, token.line);
}

Result<StatementPtr> Parser::parse_print() {
  StatementPtr statement = make_statement(StatementKind::kOutput, take().line);
  statement->expression = make(ExpressionKind::kConcat, statement->line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->expression->children.empty()) BATON_TRY(expect_operator(","));
    BATON_TRY_ASSIGN(ExpressionPtr part, parse_expression());
    BATON_TRY(add_child(*statement->expression, std::move(part)));
  }
  BATON_TRY(expect_block_end());
  return statement;
}

Result<Target> Parser::parse_target_part(bool members) {
  if (++nesting_ > kNestingMax) return unexpected("fewer nested targets");
  Target target;
  if (skip_operator("(")) {
    BATON_TRY_ASSIGN(target, parse_target(members));
    BATON_TRY(expect_operator(")"));
  } else {
    int line = current().line;
    BATON_TRY_ASSIGN(target.name, expect_name());
    if (members && skip_operator(".")) {
      target.form = Target::Form::kMember;
      BATON_TRY_ASSIGN(target.member, expect_name());
    } else {
      for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
        if (target.name == constant) {
          return fail(Code::kInvalidArgument, "line {}: can't assign to '{}'", line, target.name);
        }
      }
    }
  }
  --nesting_;
  return target;
}

Result<Target> Parser::parse_target(bool members) {
  BATON_TRY_ASSIGN(Target first, parse_target_part(members));
  if (!is_operator(",")) return first;
  Target tuple;
  tuple.form = Target::Form::kTuple;
  tuple.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (current().kind != TokenKind::kName && !is_operator("(")) break;
    if (is_name("in")) break;
    BATON_TRY_ASSIGN(Target part, parse_target_part(members));
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

}  // namespace baton::text::jinja
