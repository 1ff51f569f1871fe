// Reads {"name": "f", "arguments": {…}} between <tool_call> and </tool_call> while it comes, in either order of
// members.
#pragma once

#include <string>
#include <string_view>

#include "text/chat/parsers/event_writer.h"

namespace baton::text {

class HermesCall {
 public:
  explicit HermesCall(EventWriter& writer) : writer_(&writer) {}
  void push(std::string_view text);
  // The region has ended; `by_model`: by its end marker. Ends the call, if one was begun.
  void finish(bool by_model);
  bool begun() const { return begun_; }
  bool complete() const { return state_ == State::kClosed; }

 private:
  enum class State : uint8_t { kStart, kMember, kKey, kColon, kValue, kNested, kString, kScalar, kClosed, kBroken };
  enum class Target : uint8_t { kName, kArguments, kOther };
  void step(char c);
  void in_value(char c);
  void begin_value(char c);
  void end_value();
  void keep(char c);
  void flush();
  bool ends_string(char c);

  EventWriter* writer_;
  State state_ = State::kStart;
  Target target_ = Target::kOther;
  int64_t depth_ = 0;
  bool in_string_ = false;  // inside a nested value
  bool escaped_ = false;
  std::string word_;     // the key, the name, or arguments that must be whole before they are shown
  std::string pending_;  // arguments that are certain but not yet written
  bool has_name_ = false, has_arguments_ = false, begun_ = false, wrote_ = false;
  std::string name_;
};

}  // namespace baton::text
