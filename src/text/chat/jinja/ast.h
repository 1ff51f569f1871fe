// The parsed template. Immutable after parsing; shared by renders on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/chat/jinja/value.h"

namespace baton::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : uint8_t {
  kConstant,   // constant
  kName,       // name
  kList,       // children
  kTuple,      // children
  kDict,       // children: key, value, key, value, ...
  kAttribute,  // children[0] . name
  kSubscript,  // children[0] [ children[1] ]
  kSlice,      // children[0] [ children[1] : children[2] : children[3] ], absent parts null
  kCall,       // children[0] ( arguments )
  kFilter,     // children[0] | name ( arguments ); children[0] null inside a filter block
  kTest,       // children[0] is name ( arguments )
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kBinary,      // children[0] op children[1]
  kConcat,      // children joined by ~
  kCompare,     // children[0] ops[0] children[1] ops[1] children[2] ...
  kConditional  // children[0] if children[1] else children[2] (may be null)
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Argument {
  enum class Form : uint8_t { kPositional, kNamed, kStar, kDoubleStar };
  Form form = Form::kPositional;
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  ExpressionKind kind;
  int line;
  int depth = 1;
  std::string name;
  Value constant;
  Operator op = Operator::kAdd;
  std::vector<Operator> ops;
  std::vector<ExpressionPtr> children;
  std::vector<Argument> arguments;
};

// What an assignment binds: a name, `namespace.member`, or a tuple of these.
struct Target {
  enum class Form : uint8_t { kName, kMember, kTuple };
  Form form = Form::kName;
  std::string name;
  std::string member;
  std::vector<Target> parts;
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

enum class StatementKind : uint8_t {
  kText,         // text
  kOutput,       // expression
  kIf,           // branches: (condition or null, body)
  kFor,          // target, expression, condition (may be null), body, else_body
  kSet,          // target, expression
  kSetBlock,     // target, filters (may be null), body
  kMacro,        // macro
  kCallBlock,    // expression (the call), macro (the caller)
  kFilterBlock,  // filters, body
  kScope,        // body in a scope of its own: {% generation %}
  kWith,         // parameters (targets, values), body
  kBreak,
  kContinue,
};

struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
  Body body;
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Body body;
};

struct Statement {
  StatementKind kind;
  int line;
  StringPtr text;
  ExpressionPtr expression;
  ExpressionPtr condition;
  ExpressionPtr filters;  // a chain of kFilter whose innermost child is null
  bool recursive = false;
  Target target;
  std::vector<Target> targets;
  std::vector<ExpressionPtr> values;
  std::vector<Branch> branches;
  std::unique_ptr<MacroDefinition> macro;
  Body body;
  Body else_body;
};

}  // namespace baton::text::jinja
