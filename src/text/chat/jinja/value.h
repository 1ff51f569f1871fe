// The values a chat template computes with: Python's, as far as a template can tell the difference.
//
// Values are immutable and shared; only iterators and loops carry state. Namespaces and macros belong to the render
// that made them (interpreter.h), so values can form no ownership cycle.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace baton::text::jinja {

class Interpreter;
class Value;
struct Sequence;
struct Dict;
struct IteratorState;
struct Callable;
struct LoopState;
struct Namespace;

enum class Kind : uint8_t {
  kUndefined,  // carries the message of the error that any use but printing and testing raises
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kDictKeys,
  kDictValues,
  kDictItems,
  kDict,
  kIterator,  // what Python calls a generator: can be walked once
  kNamespace,
  kCallable,
  kLoop,
};

using StringPtr = std::shared_ptr<const std::string>;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using IteratorPtr = std::shared_ptr<IteratorState>;
using CallablePtr = std::shared_ptr<const Callable>;
using LoopPtr = std::shared_ptr<LoopState>;

class Value {
 public:
  Value() = default;
  static Value undefined(std::string message);
  static Value none() { return Value(Kind::kNone, std::monostate{}); }
  static Value boolean(bool value) { return Value(Kind::kBool, value); }
  static Value integer(int64_t value) { return Value(Kind::kInt, value); }
  static Value real(double value) { return Value(Kind::kFloat, value); }
  static Value string(std::string value);
  static Value string(StringPtr value) { return Value(Kind::kString, std::move(value)); }
  static Value sequence(Kind kind, SequencePtr value) { return Value(kind, std::move(value)); }
  static Value dict(DictPtr value) { return Value(Kind::kDict, std::move(value)); }
  static Value iterator(IteratorPtr value) { return Value(Kind::kIterator, std::move(value)); }
  static Value callable(CallablePtr value) { return Value(Kind::kCallable, std::move(value)); }
  static Value loop(LoopPtr value) { return Value(Kind::kLoop, std::move(value)); }
  static Value name_space(Namespace* value) { return Value(Kind::kNamespace, value); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  // A materialised run of items: list, tuple, range, dict views.
  bool is_sequence() const { return kind_ >= Kind::kList && kind_ <= Kind::kDictItems; }

  // Each of these needs the matching kind.
  const std::string& undefined_message() const;
  const std::string& as_string() const { return *std::get<StringPtr>(data_); }
  const StringPtr& string_pointer() const { return std::get<StringPtr>(data_); }
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return is(Kind::kBool) ? (as_bool() ? 1 : 0) : std::get<int64_t>(data_); }
  double as_double() const { return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_int()); }
  const Sequence& as_sequence() const { return *std::get<SequencePtr>(data_); }
  const Dict& as_dict() const { return *std::get<DictPtr>(data_); }
  IteratorState& as_iterator() const { return *std::get<IteratorPtr>(data_); }
  const Callable& as_callable() const { return *std::get<CallablePtr>(data_); }
  LoopState& as_loop() const { return *std::get<LoopPtr>(data_); }
  const LoopPtr& loop_pointer() const { return std::get<LoopPtr>(data_); }
  Namespace& as_namespace() const { return *std::get<Namespace*>(data_); }

  bool truthy() const;
  // Python's `is`, as far as values that have no address of their own allow.
  bool same_as(const Value& other) const;
  // How many containers deep; a plain value has 0.
  int depth() const;

 private:
  using Data = std::variant<std::monostate, bool, int64_t, double, StringPtr, SequencePtr, DictPtr, IteratorPtr,
                            CallablePtr, LoopPtr, Namespace*>;
  Value(Kind kind, Data data) : kind_(kind), data_(std::move(data)) {}

  Kind kind_ = Kind::kUndefined;
  Data data_;
};

struct Sequence {
  std::vector<Value> items;
  int depth = 1;
  int64_t range_start = 0;  // of a range: what it was made of
  int64_t range_stop = 0;
  int64_t range_step = 1;
  bool group = false;  // a tuple (grouper, list) that groupby made
};

// Keys in insertion order; beyond a few, found through their hashes.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<size_t, uint32_t> index;  // empty while there are few entries
  int depth = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Adds or overwrites. The key must be hashable. Only for a dict that nobody shares yet.
  void set(Value key, Value value);

 private:
  std::optional<size_t> locate(const Value& key) const;
};

struct IteratorState {
  std::vector<Value> items;
  size_t next = 0;
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

using NativeFunction = Result<Value> (*)(Interpreter&, const Value& self, Arguments& arguments);
struct MacroClosure;

// A built-in function, a method bound to `self`, or a macro (then `macro` is set).
struct Callable {
  std::string name;
  NativeFunction function = nullptr;
  Value self;
  const MacroClosure* macro = nullptr;
  int depth = 1;
};

// "str", "int", "NoneType", "dict", ...
std::string_view type_name(const Value& value);
// A list may hold another twice, and that again: a walk over it can take 2^depth steps. What equal(), compare(),
// hashable() and hash_of() walk on this thread is counted while a meter lives; once it is spent they give up, and what
// they say then means nothing.
class WorkMeter {
 public:
  explicit WorkMeter(int64_t limit);
  ~WorkMeter();
  WorkMeter(const WorkMeter&) = delete;
  WorkMeter& operator=(const WorkMeter&) = delete;
  static bool is_spent();          // of this thread's meter, if there is one
  static bool spend(size_t work);  // false once it is spent

 private:
  int64_t left_;
  WorkMeter* outer_;
};

// Equality as Python's ==; never fails.
bool equal(const Value& a, const Value& b);
// <0, 0, >0. Error: the TypeError that Python's < raises, or an undefined operand's message. `op` is for the message.
Result<int> compare(const Value& a, const Value& b, std::string_view op);
bool hashable(const Value& value);
size_t hash_of(const Value& value);

// "1.0", "1e+16", "inf": Python's repr of a float.
std::string float_text(double value);
// str(value) and repr(value), appended. Error: past `bytes_max`, or namespaces nested without end.
struct TextLimit {
  size_t bytes_max;
  int depth_left = 300;
};
Result<void> append_str(std::string& out, const Value& value, TextLimit limit);
Result<void> append_repr(std::string& out, const Value& value, TextLimit limit);

}  // namespace baton::text::jinja
