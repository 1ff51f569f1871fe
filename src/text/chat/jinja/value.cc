#include "text/chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "text/chat/jinja/loop_state.h"

namespace baton::text::jinja {

namespace {

constexpr size_t kIndexAbove = 8;

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

Result<int> compare_items(const std::vector<Value>& a, const std::vector<Value>& b, std::string_view op) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!equal(a[i], b[i])) return compare(a[i], b[i], op);
  }
  return a.size() < b.size() ? -1 : (a.size() > b.size() ? 1 : 0);
}

constexpr size_t kBytesPerStep = 64;

WorkMeter*& this_threads_meter() {
  thread_local WorkMeter* meter = nullptr;
  return meter;
}

bool orderable_sequences(const Value& a, const Value& b) {
  return a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple));
}

}  // namespace

WorkMeter::WorkMeter(int64_t limit) : left_(limit), outer_(std::exchange(this_threads_meter(), this)) {}
WorkMeter::~WorkMeter() { this_threads_meter() = outer_; }

bool WorkMeter::is_spent() {
  const WorkMeter* meter = this_threads_meter();
  return meter != nullptr && meter->left_ < 0;
}

bool WorkMeter::spend(size_t work) {
  WorkMeter* meter = this_threads_meter();
  if (meter == nullptr) return true;
  if (meter->left_ >= 0) meter->left_ -= static_cast<int64_t>(work);
  return meter->left_ >= 0;
}

Value Value::undefined(std::string message) {
  return Value(Kind::kUndefined, std::make_shared<const std::string>(std::move(message)));
}

Value Value::string(std::string value) {
  return Value(Kind::kString, std::make_shared<const std::string>(std::move(value)));
}

const std::string& Value::undefined_message() const {
  static const std::string kUnnamed = "value is undefined";
  const StringPtr* message = std::get_if<StringPtr>(&data_);
  return message == nullptr ? kUnnamed : **message;
}

bool Value::truthy() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return as_int() != 0;
    case Kind::kFloat:
      return as_double() != 0;
    case Kind::kString:
      return !as_string().empty();
    case Kind::kDict:
      return !as_dict().entries.empty();
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kCallable:
    case Kind::kLoop:
      return true;
    default:
      return !as_sequence().items.empty();
  }
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (kind_ == Kind::kUndefined || is_number() || is_string()) return equal(*this, other);
  return data_ == other.data_;
}

int Value::depth() const {
  switch (kind_) {
    case Kind::kDict:
      return as_dict().depth;
    case Kind::kIterator:
      return as_iterator().depth;
    case Kind::kCallable:
      return as_callable().depth;
    case Kind::kLoop:
      return as_loop().container_depth;
    default:
      return is_sequence() ? as_sequence().depth : 0;
  }
}

std::optional<size_t> Dict::locate(const Value& key) const {
  if (index.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equal(entries[i].first, key)) return i;
    }
    return std::nullopt;
  }
  auto [begin, end] = index.equal_range(hash_of(key));
  for (auto it = begin; it != end; ++it) {
    if (equal(entries[it->second].first, key)) return it->second;
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  std::optional<size_t> at = locate(key);
  return at ? &entries[*at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) return find(Value::string(std::string(key)));
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  depth = std::max(depth, 1 + std::max(key.depth(), value.depth()));
  if (std::optional<size_t> at = locate(key)) {
    entries[*at].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (index.empty() && entries.size() > kIndexAbove) {
    for (size_t i = 0; i + 1 < entries.size(); ++i) index.emplace(hash_of(entries[i].first), i);
  }
  if (entries.size() > kIndexAbove) index.emplace(hash_of(entries.back().first), entries.size() - 1);
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : members) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  members.emplace_back(std::string(name), std::move(value));
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kDictKeys:
      return "dict_keys";
    case Kind::kDictValues:
      return "dict_values";
    case Kind::kDictItems:
      return "dict_items";
    case Kind::kDict:
      return "dict";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return value.as_callable().macro != nullptr ? "Macro" : "builtin_function_or_method";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

bool equal(const Value& a, const Value& b) {
  if (!WorkMeter::spend(1)) return false;
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.as_string().size() != b.as_string().size()) return false;
      return WorkMeter::spend(a.as_string().size() / kBytesPerStep) && a.as_string() == b.as_string();
    case Kind::kDict:
      return equal_dicts(a.as_dict(), b.as_dict());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kDictKeys:
    case Kind::kDictItems:
      return equal_items(a.as_sequence().items, b.as_sequence().items);
    default:
      return a.same_as(b);
  }
}

Result<int> compare(const Value& a, const Value& b, std::string_view op) {
  if (a.is_undefined()) return fail(Code::kInvalidArgument, "{}", a.undefined_message());
  if (b.is_undefined()) return fail(Code::kInvalidArgument, "{}", b.undefined_message());
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : (a.as_int() > b.as_int() ? 1 : 0);
  if (a.is_number() && b.is_number()) {
    return a.as_double() < b.as_double() ? -1 : (a.as_double() > b.as_double() ? 1 : 0);
  }
  if (a.is_string() && b.is_string()) {
    WorkMeter::spend(std::min(a.as_string().size(), b.as_string().size()) / kBytesPerStep);
    int order = a.as_string().compare(b.as_string());  // UTF-8 sorts as code points do
    return order < 0 ? -1 : (order > 0 ? 1 : 0);
  }
  if (orderable_sequences(a, b)) return compare_items(a.as_sequence().items, b.as_sequence().items, op);
  return fail(Code::kInvalidArgument, "'{}' not supported between instances of '{}' and '{}'", op, type_name(a),
              type_name(b));
}

bool hashable(const Value& value) {
  if (!WorkMeter::spend(1)) return false;
  if (value.is(Kind::kTuple)) {
    for (const Value& item : value.as_sequence().items) {
      if (!hashable(item)) return false;
    }
    return true;
  }
  return !value.is(Kind::kList) && !value.is(Kind::kDict) && !value.is(Kind::kDictKeys) && !value.is(Kind::kDictItems);
}

size_t hash_of(const Value& value) {
  if (!WorkMeter::spend(1)) return 0;
  if (value.is_number()) return std::hash<double>{}(value.as_double());
  if (value.is_string()) {
    WorkMeter::spend(value.as_string().size() / kBytesPerStep);
    return std::hash<std::string>{}(value.as_string());
  }
  size_t hash = static_cast<size_t>(value.kind());
  if (value.is(Kind::kTuple)) {
    for (const Value& item : value.as_sequence().items) hash = hash * 1000003 ^ hash_of(item);
  }
  return hash;
}

}  // namespace baton::text::jinja
