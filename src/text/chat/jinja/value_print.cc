// Python's str() and repr().
#include <charconv>
#include <cmath>

#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/value.h"

namespace baton::text::jinja {

namespace {

Result<void> append_items(std::string& out, const std::vector<Value>& items, TextLimit limit) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    BATON_TRY(append_repr(out, items[i], limit));
  }
  return {};
}

Result<void> append_dict(std::string& out, const Dict& dict, TextLimit limit) {
  out += '{';
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    BATON_TRY(append_repr(out, dict.entries[i].first, limit));
    out += ": ";
    BATON_TRY(append_repr(out, dict.entries[i].second, limit));
  }
  out += '}';
  return {};
}

Result<void> append_namespace(std::string& out, const Namespace& space, TextLimit limit) {
  out += "<Namespace {";
  for (size_t i = 0; i < space.members.size(); ++i) {
    if (i > 0) out += ", ";
    append_string_repr(out, space.members[i].first);
    out += ": ";
    BATON_TRY(append_repr(out, space.members[i].second, limit));
  }
  out += "}>";
  return {};
}

Result<void> append_sequence(std::string& out, const Value& value, TextLimit limit) {
  const Sequence& sequence = value.as_sequence();
  if (value.is(Kind::kRange)) {
    out += fmt::format("range({}, {}", sequence.range_start, sequence.range_stop);
    out += sequence.range_step == 1 ? ")" : fmt::format(", {})", sequence.range_step);
    return {};
  }
  std::string_view open = "[";
  std::string_view close = "]";
  switch (value.kind()) {
    case Kind::kTuple:
      open = "(";
      close = sequence.items.size() == 1 ? ",)" : ")";
      break;
    case Kind::kDictKeys:
      open = "dict_keys([";
      close = "])";
      break;
    case Kind::kDictValues:
      open = "dict_values([";
      close = "])";
      break;
    case Kind::kDictItems:
      open = "dict_items([";
      close = "])";
      break;
    default:
      break;
  }
  out += open;
  BATON_TRY(append_items(out, sequence.items, limit));
  out += close;
  return {};
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  size_t e = text.find('e');
  int exponent = 0;
  std::string_view exponent_text = text.substr(e + 1);
  if (exponent_text.starts_with('+')) exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string sign = text.starts_with('-') ? "-" : "";
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

Result<void> append_str(std::string& out, const Value& value, TextLimit limit) {
  if (value.is_undefined()) return {};
  if (!value.is_string()) return append_repr(out, value, limit);
  if (out.size() + value.as_string().size() > limit.bytes_max) {
    return fail(Code::kOutOfRange, "the text grows beyond {} bytes", limit.bytes_max);
  }
  out += value.as_string();
  return {};
}

Result<void> append_repr(std::string& out, const Value& value, TextLimit limit) {
  if (out.size() > limit.bytes_max) return fail(Code::kOutOfRange, "the text grows beyond {} bytes", limit.bytes_max);
  if (--limit.depth_left < 0) return fail(Code::kInvalidArgument, "maximum recursion depth exceeded");
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return {};
    case Kind::kNone:
      out += "None";
      return {};
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      return {};
    case Kind::kInt:
      out += std::to_string(value.as_int());
      return {};
    case Kind::kFloat:
      out += float_text(value.as_double());
      return {};
    case Kind::kString:
      if (out.size() + value.as_string().size() > limit.bytes_max) {
        return fail(Code::kOutOfRange, "the text grows beyond {} bytes", limit.bytes_max);
      }
      append_string_repr(out, value.as_string());
      return {};
    case Kind::kDict:
      return append_dict(out, value.as_dict(), limit);
    case Kind::kNamespace:
      return append_namespace(out, value.as_namespace(), limit);
    case Kind::kIterator:
      out += "<generator object>";
      return {};
    case Kind::kCallable:
      out +=
          fmt::format("<{} {}>", value.as_callable().macro != nullptr ? "Macro" : "function", value.as_callable().name);
      return {};
    case Kind::kLoop:
      out += "<LoopContext>";
      return {};
    default:
      return append_sequence(out, value, limit);
  }
}

}  // namespace baton::text::jinja
