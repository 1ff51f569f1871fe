#include "text/chat/jinja/interpreter_guards.h"

namespace baton::text::jinja {

Result<void> Interpreter::check_depth(const DepthGuard&) const {
  if (depth_ > limits_.depth_max) return fail(Code::kOutOfRange, "maximum recursion depth exceeded");
  return {};
}

Result<void> Interpreter::write(const Value& value) { return append_str(*output_, value, text_limit()); }

Result<Interpreter::Flow> Interpreter::execute_body(const Body& body) {
  for (const StatementPtr& statement : body) {
    BATON_TRY_ASSIGN(Flow flow, execute(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement) {
  DepthGuard guard(*this);
  BATON_TRY(check_depth(guard));
  BATON_TRY(spend_steps(1));
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      BATON_TRY(write(Value::string(statement.text)));
      break;
    case StatementKind::kOutput: {
      BATON_TRY_ASSIGN(Value value, evaluate(*statement.expression));
      BATON_TRY(write(value));
      break;
    }
    case StatementKind::kIf:
      return execute_if(statement);
    case StatementKind::kFor:
      return execute_for(statement);
    case StatementKind::kSet: {
      BATON_TRY_ASSIGN(Value value, evaluate(*statement.expression));
      BATON_TRY(assign(statement.target, std::move(value)));
      break;
    }
    case StatementKind::kSetBlock:
      BATON_TRY(execute_set_block(statement));
      break;
    case StatementKind::kMacro:
      BATON_TRY(execute_macro(statement));
      break;
    case StatementKind::kCallBlock:
      BATON_TRY(execute_call_block(statement));
      break;
    case StatementKind::kFilterBlock:
      BATON_TRY(execute_filter_block(statement));
      break;
    case StatementKind::kScope: {
      ScopeGuard scope(*this, scope_);
      return execute_body(statement.body);
    }
    case StatementKind::kWith:
      BATON_TRY(execute_with(statement));
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition != nullptr) {
      BATON_TRY_ASSIGN(Value condition, evaluate(*branch.condition));
      if (!condition.truthy()) continue;
    }
    return execute_body(branch.body);
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_for(const Statement& statement) {
  BATON_TRY_ASSIGN(Value iterable, evaluate(*statement.expression));
  BATON_TRY_ASSIGN(std::vector<Value> items, iterate(iterable));
  return run_loop(statement, std::move(items), 0, scope_);
}

Result<Interpreter::Flow> Interpreter::run_loop(const Statement& statement, std::vector<Value> items, int depth0,
                                                Scope* around) {
  BATON_TRY(spend_bytes(sizeof(Scope) + sizeof(LoopState)));
  auto loop = std::make_shared<LoopState>();
  loop->source = std::move(items);
  for (const Value& item : loop->source) loop->container_depth = std::max(loop->container_depth, item.depth() + 1);
  loop->depth0 = depth0;
  loop->statement = &statement;
  loop->scope = around;
  // Whoever keeps `loop` beyond the end finds it ended; what it remembers must not keep it alive in turn.
  struct End {
    LoopState& state;
    ~End() {
      state.scope = nullptr;
      state.last_changed.reset();
    }
  } end{*loop};
  ScopeGuard guard(*this, around);
  bool completed = false;
  while (true) {
    BATON_TRY_ASSIGN(std::optional<Value> item, loop_next(*loop));
    if (!item) break;
    guard.scope().variables.clear();
    BATON_TRY(assign(statement.target, std::move(*item)));
    guard.scope().set("loop", Value::loop(loop));
    BATON_TRY_ASSIGN(Flow flow, execute_body(statement.body));
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNext;
  }
  // As in Jinja2, a round that break or continue cut short does not count: `else` still runs.
  if (completed || statement.else_body.empty()) return Flow::kNext;
  guard.scope().variables.clear();
  return execute_body(statement.else_body);
}

Result<std::string> Interpreter::capture(const Body& body) {
  std::string text;
  OutputGuard output(*this, &text);
  BATON_TRY(execute_body(body));
  return text;
}

Result<void> Interpreter::execute_set_block(const Statement& statement) {
  Value value;
  {
    ScopeGuard scope(*this, scope_);
    BATON_TRY_ASSIGN(std::string text, capture(statement.body));
    BATON_TRY_ASSIGN(value, make_string(std::move(text)));
    if (statement.filters != nullptr) {
      BATON_TRY_ASSIGN(value, evaluate_filter(*statement.filters, &value));
    }
  }
  return assign(statement.target, std::move(value));
}

Result<void> Interpreter::execute_filter_block(const Statement& statement) {
  ScopeGuard scope(*this, scope_);
  BATON_TRY_ASSIGN(std::string text, capture(statement.body));
  BATON_TRY_ASSIGN(Value value, make_string(std::move(text)));
  BATON_TRY_ASSIGN(value, evaluate_filter(*statement.filters, &value));
  return write(value);
}

Result<void> Interpreter::execute_with(const Statement& statement) {
  std::vector<Value> values;
  for (const ExpressionPtr& expression : statement.values) {
    BATON_TRY_ASSIGN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) BATON_TRY(assign(statement.targets[i], std::move(values[i])));
  BATON_TRY(execute_body(statement.body));
  return {};
}

Result<void> Interpreter::assign(const Target& target, Value value) {
  if (target.form == Target::Form::kName) {
    BATON_TRY(spend_bytes(sizeof(Value)));
    BATON_TRY(spend_steps(names_cost(scope_->variables.size())));
    scope_->set(target.name, std::move(value));
    return {};
  }
  if (target.form == Target::Form::kMember) {
    Value space = lookup(target.name);
    if (!space.is(Kind::kNamespace)) {
      return fail(Code::kInvalidArgument, "cannot assign attribute on non-namespace object");
    }
    BATON_TRY(spend_bytes(sizeof(Value)));
    BATON_TRY(spend_steps(names_cost(space.as_namespace().members.size())));
    space.as_namespace().set(target.member, std::move(value));
    return {};
  }
  if (value.is_undefined()) return fail(Code::kInvalidArgument, "{}", value.undefined_message());
  BATON_TRY_ASSIGN(std::vector<Value> items, iterate(value));
  if (items.size() < target.parts.size()) {
    return fail(Code::kInvalidArgument, "not enough values to unpack (expected {}, got {})", target.parts.size(),
                items.size());
  }
  if (items.size() > target.parts.size()) {
    return fail(Code::kInvalidArgument, "too many values to unpack (expected {})", target.parts.size());
  }
  for (size_t i = 0; i < items.size(); ++i) BATON_TRY(assign(target.parts[i], std::move(items[i])));
  return {};
}

}  // namespace baton::text::jinja
