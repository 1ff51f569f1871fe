// Restores what a block changes in the interpreter, on every way out.
#pragma once

#include "text/chat/jinja/interpreter.h"

namespace baton::text::jinja {

// Enters a new scope inside `parent`; a scope that a macro captured outlives its block.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), before_(interpreter.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    interpreter_.scope_ = scope_.get();
  }
  ~ScopeGuard() {
    interpreter_.scope_ = before_;
    if (scope_->captured) interpreter_.kept_scopes_.push_back(std::move(scope_));
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  Scope& scope() { return *scope_; }

 private:
  Interpreter& interpreter_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

// Sends the output elsewhere.
class Interpreter::OutputGuard {
 public:
  OutputGuard(Interpreter& interpreter, std::string* output) : interpreter_(interpreter), before_(interpreter.output_) {
    interpreter_.output_ = output;
  }
  ~OutputGuard() { interpreter_.output_ = before_; }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::string* before_;
};

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
  ~DepthGuard() { --interpreter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Interpreter& interpreter_;
};

}  // namespace baton::text::jinja
