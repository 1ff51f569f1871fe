// Filters from text to text.
#include <algorithm>

#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/operators.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

template <std::string (*kMap)(std::string_view)>
Result<Value> filter_map_text(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("filter", arguments, {}));
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 16)));
  return in.make_string(kMap(text));
}

// Words begin after white space and after - ( { [ <.
std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    std::string_view one = text.substr(at, point.bytes);
    bool splits = is_space(point.value) || std::string_view("-({[<").find(one) != std::string_view::npos;
    out += splits ? std::string(one) : (begins ? upper(one) : lower(one));
    begins = splits;
    at += point.bytes;
  }
  return out;
}

Result<Value> filter_trim(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("trim", arguments, {"chars"}));
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  std::optional<std::string_view> characters;
  if (bound[0] != nullptr && !bound[0]->is(Kind::kNone)) {
    BATON_TRY_ASSIGN(characters, need_string("trim", *bound[0]));
    BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() * characters->size() / 64)));
  }
  return in.make_string(std::string(strip(text, characters)));
}

Result<Value> filter_replace(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("replace", arguments, {"old", "new", "count"}, 2));
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  BATON_TRY_ASSIGN(std::string from, in.to_str(*bound[0]));
  BATON_TRY_ASSIGN(std::string to, in.to_str(*bound[1]));
  BATON_TRY_ASSIGN(int64_t max_count, int_or("replace", bound[2], -1));
  BATON_TRY(in.spend_steps(static_cast<int64_t>(text.size() / 16)));
  size_t hits = count_of(text, from);
  if (max_count >= 0) hits = std::min(hits, static_cast<size_t>(max_count));
  if (!to.empty() && hits > in.limits().text_bytes_max / to.size()) {
    return fail(Code::kOutOfRange, "the text grows beyond {} bytes", in.limits().text_bytes_max);
  }
  return in.make_string(replace(text, from, to, max_count));
}

Result<Value> filter_string(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("string", arguments, {}));
  if (input.is_string()) return input;
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  return in.make_string(std::move(text));
}

Result<Value> filter_format(Interpreter& in, const Value& input, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    return fail(Code::kInvalidArgument, "can't handle positional and keyword arguments at the same time");
  }
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  Value values;
  if (!arguments.named.empty()) {
    Dict dict;
    for (auto& [name, value] : arguments.named) dict.set(Value::string(name), value);
    BATON_TRY_ASSIGN(values, in.make_dict(std::move(dict)));
  } else {
    BATON_TRY_ASSIGN(values, in.make_sequence(Kind::kTuple, arguments.positional));
  }
  return format_percent(in, text, values);
}

Result<Value> filter_wordcount(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("wordcount", arguments, {}));
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    bool word =
        point.value == '_' || has_class(point.value, CharClass::kAlpha) || has_class(point.value, CharClass::kNumeric);
    count += word && !in_word ? 1 : 0;
    in_word = word;
    at += point.bytes;
  }
  return Value::integer(count);
}

std::string percent_encode(std::string_view text, bool query) {
  std::string out;
  for (char c : text) {
    bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                 std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
    if (plain) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<Value> filter_urlencode(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("urlencode", arguments, {}));
  bool plain = input.is_string() || !(input.is_sequence() || input.is(Kind::kDict) || input.is(Kind::kIterator));
  if (plain) {
    BATON_TRY_ASSIGN(std::string text, in.to_str(input));
    return in.make_string(percent_encode(text, false));
  }
  BATON_TRY_ASSIGN(Value pairs, input.is(Kind::kDict) ? in.call_filter("items", input, {}) : Result<Value>(input));
  BATON_TRY_ASSIGN(std::vector<Value> items, in.iterate(pairs));
  std::string out;
  for (const Value& item : items) {
    BATON_TRY_ASSIGN(std::vector<Value> parts, in.iterate(item));
    if (parts.size() != 2) return fail(Code::kInvalidArgument, "not enough values to unpack (expected 2)");
    BATON_TRY_ASSIGN(std::string key, in.to_str(parts[0]));
    BATON_TRY_ASSIGN(std::string value, in.to_str(parts[1]));
    if (!out.empty()) out += '&';
    out += percent_encode(key, true) + "=" + percent_encode(value, true);
  }
  return in.make_string(std::move(out));
}

}  // namespace

std::vector<NamedFunction> text_filters() {
  return {
      {"upper", filter_map_text<upper>},
      {"lower", filter_map_text<lower>},
      {"capitalize", filter_map_text<capitalize>},
      {"title", filter_map_text<title_words>},
      {"escape", filter_map_text<escape_html>},
      {"e", filter_map_text<escape_html>},
      {"forceescape", filter_map_text<escape_html>},
      {"safe", filter_string},
      {"string", filter_string},
      {"trim", filter_trim},
      {"replace", filter_replace},
      {"format", filter_format},
      {"wordcount", filter_wordcount},
      {"urlencode", filter_urlencode},
  };
}

}  // namespace baton::text::jinja
