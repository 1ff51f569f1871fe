// Methods of str.
#include <algorithm>
#include <array>

#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/operators.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

// The characters to strip, absent for white space.
Result<std::optional<std::string_view>> strip_set(std::string_view function, const Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind(function, arguments, {"chars"}));
  if (bound[0] == nullptr || bound[0]->is(Kind::kNone)) return std::optional<std::string_view>();
  BATON_TRY_ASSIGN(std::string_view characters, need_string(function, *bound[0]));
  return std::optional<std::string_view>(characters);
}

template <bool kLeft, bool kRight>
Result<Value> method_strip(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto characters, strip_set("strip", arguments));
  size_t work = self.as_string().size() * (characters ? characters->size() : 1) / 64;
  BATON_TRY(in.spend_steps(static_cast<int64_t>(work)));
  return in.make_string(std::string(strip(self.as_string(), characters, {.left = kLeft, .right = kRight})));
}

template <std::string (*kMap)(std::string_view)>
Result<Value> method_map(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("method", arguments, {}));
  BATON_TRY(in.spend_steps(static_cast<int64_t>(self.as_string().size() / 16)));
  return in.make_string(kMap(self.as_string()));
}

template <bool kFromRight>
Result<Value> method_split(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("split", arguments, {"sep", "maxsplit"}));
  BATON_TRY_ASSIGN(int64_t max_splits, int_or("split", bound[1], -1));
  const std::string& text = self.as_string();
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 16)));
  if (bound[0] == nullptr || bound[0]->is(Kind::kNone)) {
    return in.make_strings(kFromRight ? rsplit_space(text, max_splits) : split_space(text, max_splits));
  }
  BATON_TRY_ASSIGN(std::string_view separator, need_string("split", *bound[0]));
  if (separator.empty()) return fail(Code::kInvalidArgument, "empty separator");
  if (!kFromRight) return in.make_strings(split(text, separator, max_splits));
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 64 * separator.size())));
  return in.make_strings(rsplit(text, separator, max_splits));
}

Result<Value> method_splitlines(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("splitlines", arguments, {"keepends"}));
  return in.make_strings(split_lines(self.as_string(), bound[0] != nullptr && bound[0]->truthy()));
}

// The part of the text that start and end leave, as str.find and its kin take them.
struct Window {
  std::string_view text;
  size_t offset;  // code points before it
  bool past_end;  // start lies beyond the text: nothing is ever found
};

Result<Window> window_of(Interpreter& in, std::string_view function, std::string_view text, const Value* start,
                         const Value* end) {
  BATON_TRY_ASSIGN(int64_t first, int_or(function, start, 0));
  if (first == 0 && (end == nullptr || end->is(Kind::kNone))) return Window{text, 0, false};
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 16)));
  auto count = static_cast<int64_t>(code_point_count(text));
  BATON_TRY_ASSIGN(int64_t last, int_or(function, end, count));
  if (first < 0) first = std::max<int64_t>(first + count, 0);
  if (last < 0) last = std::max<int64_t>(last + count, 0);
  last = std::min(last, count);
  if (first > last) return Window{{}, static_cast<size_t>(first), true};
  size_t from = byte_offset(text, static_cast<size_t>(first));
  size_t to = byte_offset(text, static_cast<size_t>(last));
  return Window{text.substr(from, to - from), static_cast<size_t>(first), false};
}

template <bool kEnd>
Result<Value> method_affix(Interpreter& in, const Value& self, Arguments& arguments) {
  std::string_view function = kEnd ? "endswith" : "startswith";
  BATON_TRY_ASSIGN(auto bound, bind(function, arguments, {"affix", "start", "end"}, 1));
  BATON_TRY_ASSIGN(Window window, window_of(in, function, self.as_string(), bound[1], bound[2]));
  std::vector<Value> choices = {*bound[0]};
  if (bound[0]->is(Kind::kTuple)) choices = bound[0]->as_sequence().items;
  BATON_TRY(in.spend_steps(static_cast<int64_t>(choices.size())));
  for (const Value& choice : choices) {
    if (!choice.is_string()) {
      return fail(Code::kInvalidArgument, "{} first arg must be str or a tuple of str, not {}", function,
                  type_name(choice));
    }
    BATON_TRY(in.spend_steps(static_cast<int64_t>(choice.as_string().size() / 64)));
    bool matches = kEnd ? window.text.ends_with(choice.as_string()) : window.text.starts_with(choice.as_string());
    if (matches && !window.past_end) return Value::boolean(true);
  }
  return Value::boolean(false);
}

enum class Search { kFind, kRightFind, kIndex, kRightIndex, kCount };

template <Search kWhat>
Result<Value> method_search(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("find", arguments, {"sub", "start", "end"}, 1));
  BATON_TRY_ASSIGN(std::string_view needle, need_string("find", *bound[0]));
  BATON_TRY_ASSIGN(Window window, window_of(in, "find", self.as_string(), bound[1], bound[2]));
  BATON_TRY(in.spend_steps(static_cast<int64_t>(self.as_string().size() / 16)));
  if (kWhat == Search::kCount) {
    return Value::integer(window.past_end ? 0 : static_cast<int64_t>(count_of(window.text, needle)));
  }
  bool from_right = kWhat == Search::kRightFind || kWhat == Search::kRightIndex;
  if (from_right) BATON_TRY(in.spend_steps(static_cast<int64_t>(window.text.size() / 64 * needle.size())));
  size_t hit = from_right ? window.text.rfind(needle) : find_from(window.text, needle, 0);
  if (hit != std::string_view::npos && !window.past_end) {
    return Value::integer(static_cast<int64_t>(window.offset + code_point_count(window.text.substr(0, hit))));
  }
  if (kWhat == Search::kIndex || kWhat == Search::kRightIndex) {
    return fail(Code::kInvalidArgument, "substring not found");
  }
  return Value::integer(-1);
}

Result<Value> method_replace(Interpreter& in, const Value& self, Arguments& arguments) {
  return in.call_filter("replace", self, std::move(arguments));
}

Result<Value> method_join(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("join", arguments, {"iterable"}, 1));
  if (!bound[0]->is_undefined() && !bound[0]->is_sequence() && !bound[0]->is_string() && !bound[0]->is(Kind::kDict) &&
      !bound[0]->is(Kind::kIterator)) {
    return fail(Code::kInvalidArgument, "can only join an iterable");
  }
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(*bound[0]));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return fail(Code::kInvalidArgument, "sequence item {}: expected str instance, {} found", i, type_name(items[i]));
    }
    if (i > 0) text += self.as_string();
    BATON_TRY(append_str(text, items[i], in.text_limit()));
  }
  return in.make_string(std::move(text));
}

template <bool kPrefix>
Result<Value> method_remove_affix(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind(kPrefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1));
  BATON_TRY_ASSIGN(std::string_view affix, need_string("removeprefix", *bound[0]));
  std::string_view text = self.as_string();
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return in.make_string(std::string(text));
}

template <bool kFromRight>
Result<Value> method_partition(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("partition", arguments, {"sep"}, 1));
  BATON_TRY_ASSIGN(std::string_view separator, need_string("partition", *bound[0]));
  if (separator.empty()) return fail(Code::kInvalidArgument, "empty separator");
  std::string_view text = self.as_string();
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 64 * (kFromRight ? separator.size() : 1))));
  size_t hit = kFromRight ? text.rfind(separator) : find_from(text, separator, 0);
  std::array<std::string_view, 3> parts = {text, "", ""};
  if (hit != std::string_view::npos) {
    parts = {text.substr(0, hit), separator, text.substr(hit + separator.size())};
  } else if (kFromRight) {
    parts = {"", "", text};
  }
  std::vector<Value> items;
  for (std::string_view part : parts) {
    BATON_TRY_ASSIGN(Value item, in.make_string(std::string(part)));
    items.push_back(std::move(item));
  }
  return in.make_sequence(Kind::kTuple, std::move(items));
}

template <CharClass kClass>
Result<Value> method_all_of(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("is", arguments, {}));
  std::string_view text = self.as_string();
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 16)));
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    if (!has_class(point.value, kClass)) return Value::boolean(false);
    at += point.bytes;
  }
  return Value::boolean(!text.empty());
}

// isupper, islower: at least one cased character, and none of the other case.
template <CharClass kOther>
Result<Value> method_case(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("is", arguments, {}));
  std::string_view text = self.as_string();
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 16)));
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    if (has_class(point.value, kOther) || has_class(point.value, CharClass::kTitle)) return Value::boolean(false);
    cased |= has_class(point.value, CharClass::kCased);
    at += point.bytes;
  }
  return Value::boolean(cased);
}

template <bool (*kHolds)(char32_t), bool kOfEmpty>
Result<Value> method_each(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY(bind("is", arguments, {}));
  std::string_view text = self.as_string();
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 16)));
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    if (!kHolds(point.value)) return Value::boolean(false);
    at += point.bytes;
  }
  return Value::boolean(kOfEmpty || !text.empty());
}

bool alphanumeric(char32_t c) { return has_class(c, CharClass::kAlpha) || has_class(c, CharClass::kNumeric); }
bool ascii(char32_t c) { return c < 0x80; }

template <char kAlign>
Result<Value> method_justify(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("just", arguments, {"width", "fillchar"}, 1));
  BATON_TRY_ASSIGN(int64_t width, need_int("just", *bound[0]));
  std::string_view fill = " ";
  if (bound[1] != nullptr) {
    BATON_TRY_ASSIGN(fill, need_string("just", *bound[1]));
  }
  if (code_point_count(fill) != 1) {
    return fail(Code::kInvalidArgument, "The fill character must be exactly one character long");
  }
  auto length = static_cast<int64_t>(code_point_count(self.as_string()));
  int64_t missing = width > length ? width - length : 0;
  if (missing > static_cast<int64_t>(in.limits().text_bytes_max)) return fail(Code::kOutOfRange, "a field too wide");
  int64_t left = kAlign == '<' ? 0 : missing;
  if (kAlign == '^') left = missing / 2 + (missing & width & 1);
  std::string text;
  for (int64_t i = 0; i < left; ++i) text += fill;
  text += self.as_string();
  for (int64_t i = left; i < missing; ++i) text += fill;
  return in.make_string(std::move(text));
}

Result<Value> method_zfill(Interpreter& in, const Value& self, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("zfill", arguments, {"width"}, 1));
  BATON_TRY_ASSIGN(int64_t width, need_int("zfill", *bound[0]));
  std::string text = self.as_string();
  auto length = static_cast<int64_t>(code_point_count(text));
  int64_t missing = width > length ? width - length : 0;
  if (missing > static_cast<int64_t>(in.limits().text_bytes_max)) return fail(Code::kOutOfRange, "a field too wide");
  bool is_signed = text.starts_with('-') || text.starts_with('+');
  if (missing > 0) text.insert(is_signed ? 1 : 0, static_cast<size_t>(missing), '0');
  return in.make_string(std::move(text));
}

Result<Value> method_format(Interpreter& in, const Value& self, Arguments& arguments) {
  return format_braces(in, self.as_string(), arguments);
}

constexpr auto kMethods = std::to_array<NamedFunction>({
    {"strip", method_strip<true, true>},
    {"lstrip", method_strip<true, false>},
    {"rstrip", method_strip<false, true>},
    {"upper", method_map<upper>},
    {"lower", method_map<lower>},
    {"casefold", method_map<lower>},
    {"title", method_map<title>},
    {"capitalize", method_map<capitalize>},
    {"swapcase", method_map<swap_case>},
    {"split", method_split<false>},
    {"rsplit", method_split<true>},
    {"splitlines", method_splitlines},
    {"startswith", method_affix<false>},
    {"endswith", method_affix<true>},
    {"find", method_search<Search::kFind>},
    {"rfind", method_search<Search::kRightFind>},
    {"index", method_search<Search::kIndex>},
    {"rindex", method_search<Search::kRightIndex>},
    {"count", method_search<Search::kCount>},
    {"replace", method_replace},
    {"join", method_join},
    {"removeprefix", method_remove_affix<true>},
    {"removesuffix", method_remove_affix<false>},
    {"partition", method_partition<false>},
    {"rpartition", method_partition<true>},
    {"isalpha", method_all_of<CharClass::kAlpha>},
    {"isdecimal", method_all_of<CharClass::kDecimal>},
    {"isdigit", method_all_of<CharClass::kDigit>},
    {"isnumeric", method_all_of<CharClass::kNumeric>},
    {"isupper", method_case<CharClass::kLower>},
    {"islower", method_case<CharClass::kUpper>},
    {"isspace", method_each<is_space, false>},
    {"isalnum", method_each<alphanumeric, false>},
    {"isprintable", method_each<is_printable, true>},
    {"isascii", method_each<ascii, true>},
    {"ljust", method_justify<'<'>},
    {"rjust", method_justify<'>'>},
    {"center", method_justify<'^'>},
    {"zfill", method_zfill},
    {"format", method_format},
});

}  // namespace

NativeFunction find_string_method(std::string_view name) {
  for (const NamedFunction& method : kMethods) {
    if (method.name == name) return method.function;
  }
  return nullptr;
}

}  // namespace baton::text::jinja
