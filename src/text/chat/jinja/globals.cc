// Functions that every template sees: range, dict, namespace, raise_exception and strftime_now.
#include <ctime>

#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

Result<Value> global_range(Interpreter& in, const Value&, Arguments& arguments) {
  if (arguments.positional.empty() || arguments.positional.size() > 3 || !arguments.named.empty()) {
    return fail(Code::kInvalidArgument, "range expected 1 to 3 arguments, got {}", arguments.positional.size());
  }
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    BATON_TRY_ASSIGN(parts[i], need_int("range", arguments.positional[i]));
  }
  if (arguments.positional.size() == 1) std::swap(parts[0], parts[1]);
  auto [start, stop, step] = parts;
  if (step == 0) return fail(Code::kInvalidArgument, "range() arg 3 must not be zero");
  bool empty = step > 0 ? start >= stop : start <= stop;
  auto span = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  uint64_t count = empty ? 0 : (span - 1) / stride + 1;
  if (count > static_cast<uint64_t>(in.limits().range_max)) {
    return fail(Code::kOutOfRange, "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                in.limits().range_max);
  }
  BATON_TRY(in.spend_bytes(count * sizeof(Value)));
  auto sequence = std::make_shared<Sequence>();
  for (uint64_t i = 0; i < count; ++i) {
    // Unsigned: the distance from the start may be beyond 63 bits.
    const uint64_t item = static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step);
    sequence->items.push_back(Value::integer(static_cast<int64_t>(item)));
  }
  sequence->range_start = start;
  sequence->range_stop = stop;
  sequence->range_step = step;
  return Value::sequence(Kind::kRange, std::move(sequence));
}

// dict(mapping or pairs, **names), as entries in order.
Result<Dict> dict_of(Interpreter& in, std::string_view function, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    return fail(Code::kInvalidArgument, "{} expected at most 1 argument, got {}", function,
                arguments.positional.size());
  }
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.as_dict().entries) dict.set(key, value);
    } else {
      BATON_TRY_ASSIGN(std::vector<Value> pairs, in.iterate(source));
      for (const Value& pair : pairs) {
        BATON_TRY_ASSIGN(std::vector<Value> parts, in.iterate(pair));
        if (parts.size() != 2) {
          return fail(Code::kInvalidArgument, "dictionary update sequence element has length {}; 2 is required",
                      parts.size());
        }
        if (!hashable(parts[0])) return fail(Code::kInvalidArgument, "unhashable type: '{}'", type_name(parts[0]));
        dict.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::string(name), value);
  return dict;
}

Result<Value> global_dict(Interpreter& in, const Value&, Arguments& arguments) {
  BATON_TRY_ASSIGN(Dict dict, dict_of(in, "dict", arguments));
  return in.make_dict(std::move(dict));
}

Result<Value> global_namespace(Interpreter& in, const Value&, Arguments& arguments) {
  BATON_TRY_ASSIGN(Dict dict, dict_of(in, "namespace", arguments));
  BATON_TRY(in.spend_bytes(sizeof(Namespace) + dict.entries.size() * 2 * sizeof(Value)));
  Namespace space;
  for (auto& [key, value] : dict.entries) {
    BATON_TRY_ASSIGN(std::string name, in.to_str(key));
    BATON_TRY(in.spend_steps(Interpreter::names_cost(space.members.size())));
    space.set(name, std::move(value));
  }
  return in.make_namespace(std::move(space));
}

Result<Value> global_raise(Interpreter& in, const Value&, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("raise_exception", arguments, {"message"}, 1));
  BATON_TRY_ASSIGN(std::string message, in.to_str(*bound[0]));
  return in.raise(std::move(message));
}

Result<Value> global_strftime_now(Interpreter& in, const Value&, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("strftime_now", arguments, {"format"}, 1));
  BATON_TRY_ASSIGN(std::string_view format, need_string("strftime_now", *bound[0]));
  constexpr size_t kFormatBytesMax = 1000;
  if (format.size() > kFormatBytesMax) return fail(Code::kOutOfRange, "a time format beyond {} bytes", kFormatBytesMax);
  std::time_t now = in.now().value_or(std::time(nullptr));
  std::tm parts{};
  localtime_r(&now, &parts);
  // Widths such as %9999d are an extension that Python passes on; here they only fail to fit.
  std::string text(64 * kFormatBytesMax, '\0');
  size_t written = std::strftime(text.data(), text.size(), std::string(format).c_str(), &parts);
  text.resize(written);
  return in.make_string(std::move(text));
}

}  // namespace

NativeFunction find_global(std::string_view name) {
  if (name == "range") return global_range;
  if (name == "dict") return global_dict;
  if (name == "namespace") return global_namespace;
  if (name == "raise_exception") return global_raise;
  if (name == "strftime_now") return global_strftime_now;
  return nullptr;
}

}  // namespace baton::text::jinja
