// One render of a template: scopes, budget, output, and the services that filters and methods ask for.
//
// Lives for one render, on one thread. Everything is bounded: steps, bytes made, output, depth.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/jinja/ast.h"
#include "text/chat/jinja/loop_state.h"
#include "text/chat/jinja/value.h"

namespace baton::text::jinja {

struct Limits {
  int64_t steps_max = 20'000'000;
  int64_t bytes_made_max = int64_t{512} << 20;  // strings and containers built, all together
  size_t text_bytes_max = size_t{64} << 20;     // the output, and any one string
  int depth_max = 700;                          // expressions and statements within one another
  int container_depth_max = 250;
  int64_t range_max = 100'000;
};

// Variables of one block. Those of outer blocks are seen through `parent`.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> variables;
  bool captured = false;  // a macro was defined here: it may be called after the block's end

  void set(std::string_view name, Value value);
  const Value* find_here(std::string_view name) const;
};

struct MacroClosure {
  const MacroDefinition* definition;
  Scope* scope;
};

class Interpreter {
 public:
  Interpreter(const Limits& limits, std::optional<std::time_t> now) : limits_(limits), now_(now) {
    root_ = std::make_unique<Scope>();
    scope_ = root_.get();
  }

  void set_variable(std::string_view name, Value value) { root_->set(name, std::move(value)); }
  Result<std::string> render(const Body& body);

  const Limits& limits() const { return limits_; }
  std::optional<std::time_t> now() const { return now_; }

  // Budgets. Every walk and every copy asks first.
  Result<void> spend_steps(int64_t steps);
  Result<void> spend_bytes(size_t bytes);
  // Steps for a walk over names of variables or members, which are few in any template that is meant to be used.
  static int64_t names_cost(size_t names) { return static_cast<int64_t>(names / 16); }
  TextLimit text_limit() const { return {.bytes_max = limits_.text_bytes_max}; }

  // Makers that keep the budgets.
  Result<Value> make_string(std::string text);
  Result<Value> make_sequence(Kind kind, std::vector<Value> items);
  Result<Value> make_list(std::vector<Value> items) { return make_sequence(Kind::kList, std::move(items)); }
  Result<Value> make_dict(Dict dict);
  Result<Value> make_iterator(std::vector<Value> items);
  Result<Value> make_strings(const std::vector<std::string_view>& parts);
  Value make_namespace(Namespace members);
  Value make_method(std::string_view name, NativeFunction function, Value self) const;

  // Python's protocols.
  Result<std::vector<Value>> iterate(const Value& value);
  Result<std::string> to_str(const Value& value);
  Result<Value> get_attribute(const Value& object, std::string_view name);
  Result<Value> get_item(const Value& object, const Value& key);
  Result<Value> get_slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  Result<Value> call(const Value& callee, Arguments arguments);
  Result<Value> call_filter(std::string_view name, const Value& input, Arguments arguments);
  Result<bool> call_test(std::string_view name, const Value& input, Arguments arguments);
  // raise_exception: the message is kept as it is.
  std::unexpected<Status> raise(std::string message);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class ScopeGuard;
  class OutputGuard;
  class DepthGuard;

  Result<void> check_depth(const DepthGuard& guard) const;
  Result<void> write(const Value& value);
  Result<Flow> execute_body(const Body& body);
  Result<Flow> execute(const Statement& statement);
  Result<Flow> execute_if(const Statement& statement);
  Result<Flow> execute_for(const Statement& statement);
  Result<Flow> run_loop(const Statement& statement, std::vector<Value> items, int depth0, Scope* around);
  Result<void> execute_set_block(const Statement& statement);
  Result<void> execute_macro(const Statement& statement);
  Result<void> execute_call_block(const Statement& statement);
  Result<void> execute_filter_block(const Statement& statement);
  Result<void> execute_with(const Statement& statement);
  Result<std::string> capture(const Body& body);
  Result<void> assign(const Target& target, Value value);
  Result<std::optional<Value>> loop_pull(LoopState& loop);
  Result<std::optional<Value>> loop_next(LoopState& loop);
  Result<Value> loop_attribute(const Value& loop_value, std::string_view name);
  Result<Value> call_loop(LoopState& loop, Arguments arguments);
  Value define_macro(const MacroDefinition& definition);
  Result<Value> call_macro(const MacroClosure& macro, Arguments arguments);
  Result<void> bind_macro(const MacroDefinition& macro, Arguments arguments, Scope& scope);

  Value lookup(std::string_view name) const;
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_items(const Expression& expression, Kind kind);
  Result<Value> evaluate_dict(const Expression& expression);
  Result<Value> evaluate_logic(const Expression& expression);
  Result<Value> evaluate_binary(const Expression& expression);
  Result<Value> evaluate_concat(const Expression& expression);
  Result<Value> evaluate_compare(const Expression& expression);
  Result<Value> evaluate_conditional(const Expression& expression);
  Result<Value> evaluate_subscript(const Expression& expression);
  Result<Value> evaluate_slice(const Expression& expression);
  Result<Value> evaluate_call(const Expression& expression, const Value* caller);
  Result<Value> evaluate_filter(const Expression& expression, const Value* input);
  Result<Value> evaluate_test(const Expression& expression);
  Result<Arguments> evaluate_arguments(const std::vector<Argument>& arguments);

  Limits limits_;
  std::optional<std::time_t> now_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int depth_ = 0;
  int line_ = 0;
  bool raised_ = false;
  std::unique_ptr<Scope> root_;
  Scope* scope_ = nullptr;
  std::string* output_ = nullptr;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  std::deque<Namespace> namespaces_;
  std::deque<MacroClosure> macros_;
};

}  // namespace baton::text::jinja
