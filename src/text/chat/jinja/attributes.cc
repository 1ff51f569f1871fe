// a.b, a[b] and a[b:c:d], as Jinja2's immutable sandbox resolves them.
#include <algorithm>

#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

std::string object_repr(const Value& object) {
  switch (object.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kNamespace:
      return "jinja2.utils.Namespace object";
    case Kind::kLoop:
      return "jinja2.runtime.LoopContext object";
    default:
      return fmt::format("{} object", type_name(object));
  }
}

Value no_attribute(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", object_repr(object), name));
}

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
}

bool is_dunder(std::string_view name) { return name.size() > 4 && name.starts_with("__") && name.ends_with("__"); }

NativeFunction find_method(const Value& object, std::string_view name) {
  if (object.is_string()) return find_string_method(name);
  if (object.is(Kind::kDict)) return find_dict_method(name);
  if (object.is(Kind::kList) || object.is(Kind::kTuple) || object.is(Kind::kRange)) return find_sequence_method(name);
  return nullptr;
}

Value macro_attribute(const Value& macro, std::string_view name) {
  const MacroDefinition& definition = *macro.as_callable().macro->definition;
  if (name == "name") return Value::string(definition.name);
  if (name == "caller") return Value::boolean(definition.uses_caller);
  if (name == "catch_kwargs") return Value::boolean(definition.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition.uses_varargs);
  if (name == "arguments") {
    auto names = std::make_shared<Sequence>();
    for (const std::string& parameter : definition.parameters) names->items.push_back(Value::string(parameter));
    return Value::sequence(Kind::kTuple, std::move(names));
  }
  return Value::undefined(fmt::format("'jinja2.runtime.Macro object' has no attribute '{}'", name));
}

// Where getattr(object, name) would find something; absent otherwise.
std::optional<Value> python_attribute(const Interpreter& interpreter, const Value& object, std::string_view name) {
  if (NativeFunction method = find_method(object, name)) return interpreter.make_method(name, method, object);
  if (is_mutating_method(object.kind(), name) || is_dunder(name)) return unsafe(object, name);
  return std::nullopt;
}

// The item at a Python index; absent where the index is out of range.
std::optional<size_t> python_index(int64_t index, size_t count) {
  auto size = static_cast<int64_t>(count);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<size_t>(index);
}

std::optional<Value> item_of(const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    const Value* found = hashable(key) ? object.as_dict().find(key) : nullptr;
    return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  if (object.is(Kind::kList) || object.is(Kind::kTuple) || object.is(Kind::kRange)) {
    const std::vector<Value>& items = object.as_sequence().items;
    auto at = python_index(key.as_int(), items.size());
    return at ? std::optional<Value>(items[*at]) : std::nullopt;
  }
  if (object.is_string()) {
    std::string_view text = object.as_string();
    auto at = python_index(key.as_int(), code_point_count(text));
    if (!at) return std::nullopt;
    size_t offset = byte_offset(text, *at);
    return Value::string(std::string(text.substr(offset, code_point_at(text, offset).bytes)));
  }
  return std::nullopt;
}

struct SliceRange {
  int64_t start;
  int64_t stop;
  int64_t step;
};

// slice.indices(length).
Result<SliceRange> slice_range(const Value& start, const Value& stop, const Value& step, int64_t length) {
  for (const Value* part : {&start, &stop, &step}) {
    if (part->is_undefined()) return fail(Code::kInvalidArgument, "{}", part->undefined_message());
    if (!part->is(Kind::kNone) && !part->is_integral()) {
      return fail(Code::kInvalidArgument, "slice indices must be integers or None or have an __index__ method");
    }
  }
  SliceRange range{0, length, step.is(Kind::kNone) ? 1 : step.as_int()};
  if (range.step == 0) return fail(Code::kInvalidArgument, "slice step cannot be zero");
  bool backwards = range.step < 0;
  int64_t low = backwards ? -1 : 0;
  int64_t high = backwards ? length - 1 : length;
  auto clamp = [&](const Value& part, int64_t otherwise) {
    if (part.is(Kind::kNone)) return otherwise;
    int64_t value = part.as_int();
    if (value < 0) value = value < -length ? low : value + length;
    return std::min(std::max(value, low), high);
  };
  range.start = clamp(start, backwards ? high : low);
  range.stop = clamp(stop, backwards ? low : high);
  return range;
}

template <typename Item>
std::vector<Item> sliced(const std::vector<Item>& items, SliceRange range) {
  std::vector<Item> out;
  auto step_past = [&](int64_t at) { return range.step > 0 ? at >= range.stop : at <= range.stop; };
  for (int64_t at = range.start; !step_past(at);) {
    out.push_back(items[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, range.step, &at)) break;
  }
  return out;
}

// A slice of a range is a range.
Value range_part(const Sequence& whole, SliceRange slice, const Value& part) {
  auto range = std::make_shared<Sequence>(part.as_sequence());
  // Unsigned: what Python shows of a range with bounds beyond 64 bits is not worth an error.
  const auto place = [&](int64_t at) {
    return static_cast<int64_t>(static_cast<uint64_t>(whole.range_start) +
                                static_cast<uint64_t>(at) * static_cast<uint64_t>(whole.range_step));
  };
  range->range_start = place(slice.start);
  range->range_stop = place(slice.stop);
  range->range_step = static_cast<int64_t>(static_cast<uint64_t>(whole.range_step) * static_cast<uint64_t>(slice.step));
  return Value::sequence(Kind::kRange, std::move(range));
}

}  // namespace

Result<Value> Interpreter::get_attribute(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return fail(Code::kInvalidArgument, "{}", object.undefined_message());
    case Kind::kLoop:
      return loop_attribute(object, name);
    case Kind::kNamespace: {
      const Value* found = object.as_namespace().find(name);
      if (found != nullptr) return *found;
      return is_dunder(name) ? unsafe(object, name) : no_attribute(object, name);
    }
    case Kind::kCallable:
      if (is_dunder(name)) return unsafe(object, name);
      return object.as_callable().macro != nullptr ? macro_attribute(object, name) : no_attribute(object, name);
    default:
      break;
  }
  if (object.is(Kind::kTuple) && object.as_sequence().group) {
    if (name == "grouper") return object.as_sequence().items[0];
    if (name == "list") return object.as_sequence().items[1];
  }
  if (auto found = python_attribute(*this, object, name)) return *found;
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.as_dict().find(name)) return *found;
  }
  return no_attribute(object, name);
}

Result<Value> Interpreter::get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) return fail(Code::kInvalidArgument, "{}", object.undefined_message());
  if (object.is_string()) BATON_TRY(spend_steps(static_cast<int64_t>(object.as_string().size() / 16)));
  if (auto found = item_of(object, key)) return *found;
  if (key.is_string()) {
    const std::string& name = key.as_string();
    if (object.is(Kind::kDict)) {
      auto found = python_attribute(*this, object, name);
      return found ? *found : no_attribute(object, name);
    }
    return get_attribute(object, name);
  }
  std::string shown;
  BATON_TRY(append_repr(shown, key, text_limit()));
  BATON_TRY(spend_bytes(shown.size()));
  return Value::undefined(fmt::format("{} has no element {}", object_repr(object), shown));
}

Result<Value> Interpreter::get_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) return fail(Code::kInvalidArgument, "{}", object.undefined_message());
  if (object.is_string()) {
    BATON_TRY(spend_bytes(object.as_string().size() * sizeof(std::string_view)));
    std::vector<std::string_view> points = code_points(object.as_string());
    BATON_TRY_ASSIGN(SliceRange range, slice_range(start, stop, step, static_cast<int64_t>(points.size())));
    std::string text;
    for (std::string_view point : sliced(points, range)) text += point;
    return make_string(std::move(text));
  }
  if (object.is(Kind::kList) || object.is(Kind::kTuple) || object.is(Kind::kRange)) {
    const std::vector<Value>& items = object.as_sequence().items;
    BATON_TRY(spend_steps(static_cast<int64_t>(items.size() / 8)));
    BATON_TRY_ASSIGN(SliceRange range, slice_range(start, stop, step, static_cast<int64_t>(items.size())));
    BATON_TRY_ASSIGN(Value part, make_sequence(object.kind(), sliced(items, range)));
    return object.is(Kind::kRange) ? range_part(object.as_sequence(), range, part) : part;
  }
  if (object.is(Kind::kDict)) return fail(Code::kInvalidArgument, "unhashable type: 'slice'");
  return fail(Code::kInvalidArgument, "'{}' object is not subscriptable", type_name(object));
}

bool is_mutating_method(Kind kind, std::string_view name) {
  auto among = [name](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (kind == Kind::kList) {
    return among({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  }
  return kind == Kind::kDict && among({"clear", "pop", "popitem", "setdefault", "update"});
}

}  // namespace baton::text::jinja
