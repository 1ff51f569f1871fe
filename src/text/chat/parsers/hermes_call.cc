#include "text/chat/parsers/hermes_call.h"

#include <nlohmann/json.hpp>

namespace baton::text {
namespace {

using nlohmann::json;

// The text of a JSON string literal; the literal's own inside where it is no valid one.
std::string decoded(const std::string& literal) {
  const json value = json::parse(literal, nullptr, false);
  if (value.is_string()) return value.get<std::string>();
  return literal.size() >= 2 ? literal.substr(1, literal.size() - 2) : std::string();
}

// Arguments that the model has written as a string: the object inside it, if there is one.
std::string unwrapped(std::string literal) {
  std::string inside = decoded(literal);
  const std::string_view bare = without_spaces(inside);
  return bare.starts_with('{') && json::accept(bare) ? std::string(bare) : literal;
}

bool is_space(char c) { return kSpaces.find(c) != std::string_view::npos; }

}  // namespace

void HermesCall::push(std::string_view text) {
  for (const char c : text) step(c);
  flush();
}

void HermesCall::step(char c) {
  switch (state_) {
    case State::kStart:
      if (!is_space(c)) state_ = c == '{' ? State::kMember : State::kBroken;
      return;
    case State::kMember:
      if (is_space(c) || c == ',') return;
      word_.clear();
      state_ = c == '"' ? State::kKey : c == '}' ? State::kClosed : State::kBroken;
      return;
    case State::kKey:
      if (ends_string(c)) {
        target_ = word_ == "name" && !has_name_             ? Target::kName
                  : word_ == "arguments" && !has_arguments_ ? Target::kArguments
                                                            : Target::kOther;
        state_ = State::kColon;
      } else {
        word_ += c;
      }
      return;
    case State::kColon:
      if (!is_space(c)) state_ = c == ':' ? State::kValue : State::kBroken;
      return;
    case State::kValue:
      if (!is_space(c)) begin_value(c);
      return;
    case State::kNested:
    case State::kString:
    case State::kScalar:
      return in_value(c);
    case State::kClosed:
    case State::kBroken:
      return;
  }
}

void HermesCall::begin_value(char c) {
  word_.clear();
  depth_ = 0;
  in_string_ = escaped_ = false;
  if (target_ == Target::kArguments) has_arguments_ = true;
  state_ = c == '{' || c == '[' ? State::kNested : c == '"' ? State::kString : State::kScalar;
  state_ == State::kString ? keep(c) : in_value(c);
}

void HermesCall::in_value(char c) {
  if (state_ == State::kScalar) {
    if (c == ',' || c == '}' || is_space(c)) {
      end_value();
      return step(c);
    }
    return keep(c);
  }
  keep(c);
  if (state_ == State::kString) {
    if (ends_string(c)) end_value();
    return;
  }
  if (in_string_) {
    in_string_ = !ends_string(c);
  } else if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if ((c == '}' || c == ']') && --depth_ == 0) {
    end_value();
  }
}

// Only an object or a list can be shown while it comes: of a string its end decides what is shown.
void HermesCall::keep(char c) {
  if (target_ == Target::kOther) return;
  (target_ == Target::kArguments && state_ == State::kNested ? pending_ : word_) += c;
}

void HermesCall::end_value() {
  if (target_ == Target::kName && state_ == State::kString) {
    name_ = decoded(word_);
    has_name_ = !name_.empty();
  } else if (target_ == Target::kArguments && state_ == State::kString) {
    pending_ += unwrapped(word_);
  } else if (target_ == Target::kArguments && state_ == State::kScalar) {
    pending_ += word_;
  }
  word_.clear();
  target_ = Target::kOther;
  state_ = State::kMember;
}

bool HermesCall::ends_string(char c) {
  if (escaped_) {
    escaped_ = false;
    return false;
  }
  escaped_ = c == '\\';
  return c == '"';
}

void HermesCall::flush() {
  if (!has_name_) return;
  if (!begun_) writer_->begin_call(name_, {});
  begun_ = true;
  wrote_ |= !pending_.empty();
  writer_->arguments(pending_);
  pending_.clear();
}

void HermesCall::finish(bool by_model) {
  if (target_ == Target::kArguments && by_model) pending_ += word_;  // unfinished, as the model wrote it
  flush();
  if (!begun_) return;
  if (!wrote_ && (by_model || complete())) writer_->arguments("{}");
  writer_->end_call();
}

}  // namespace baton::text
