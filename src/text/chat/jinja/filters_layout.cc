// Filters that lay text out: indent, center, truncate, and tojson.
#include <algorithm>

#include "text/chat/jinja/json_value.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

// An indentation given as a number of spaces or as text.
Result<std::string> indentation(Interpreter& in, std::string_view function, const Value& width) {
  if (width.is_string()) return width.as_string();
  BATON_TRY_ASSIGN(int64_t count, need_int(function, width));
  if (count > static_cast<int64_t>(in.limits().text_bytes_max)) return fail(Code::kOutOfRange, "an indent too wide");
  return std::string(static_cast<size_t>(std::max<int64_t>(count, 0)), ' ');
}

Result<Value> filter_indent(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("indent", arguments, {"width", "first", "blank"}));
  if (input.is_undefined()) return fail(Code::kInvalidArgument, "{}", input.undefined_message());
  if (!input.is_string()) {
    return fail(Code::kInvalidArgument, "unsupported operand type(s) for +=: '{}' and 'str'", type_name(input));
  }
  BATON_TRY_ASSIGN(std::string indent, indentation(in, "indent", bound[0] != nullptr ? *bound[0] : Value::integer(4)));
  bool first = bound[1] != nullptr && bound[1]->truthy();
  bool blank = bound[2] != nullptr && bound[2]->truthy();
  std::string text = input.as_string() + "\n";
  std::vector<std::string_view> lines = split_lines(text, false);
  if (indent.size() > in.limits().text_bytes_max / (lines.size() + 1)) {
    return fail(Code::kOutOfRange, "the text grows beyond {} bytes", in.limits().text_bytes_max);
  }
  std::string out = first ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return in.make_string(std::move(out));
}

Result<Value> filter_center(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("center", arguments, {"width"}));
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  Arguments width;
  width.positional.push_back(bound[0] != nullptr ? *bound[0] : Value::integer(80));
  return find_string_method("center")(in, Value::string(std::move(text)), width);
}

Result<Value> filter_truncate(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  BATON_TRY_ASSIGN(std::string text, in.to_str(input));
  BATON_TRY_ASSIGN(int64_t length, int_or("truncate", bound[0], 255));
  bool kill_words = bound[1] != nullptr && bound[1]->truthy();
  std::string_view end = "...";
  if (bound[2] != nullptr) {
    BATON_TRY_ASSIGN(end, need_string("truncate", *bound[2]));
  }
  BATON_TRY_ASSIGN(int64_t leeway, int_or("truncate", bound[3], 5));
  auto end_length = static_cast<int64_t>(code_point_count(end));
  if (length < end_length) return fail(Code::kInvalidArgument, "expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return fail(Code::kInvalidArgument, "expected leeway >= 0, got {}", leeway);
  auto count = static_cast<int64_t>(code_point_count(text));
  if (count - leeway <= length) return in.make_string(std::move(text));
  std::string kept = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!kill_words) {
    size_t space = kept.rfind(' ');
    if (space != std::string::npos) kept.resize(space);
  }
  return in.make_string(kept + std::string(end));
}

Result<JsonStyle> json_style(Interpreter& in, const Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound[0] != nullptr && bound[0]->truthy();
  style.sort_keys = bound[3] != nullptr && bound[3]->truthy();
  if (bound[1] != nullptr && !bound[1]->is(Kind::kNone)) {
    BATON_TRY_ASSIGN(style.indent, indentation(in, "tojson", *bound[1]));
    if (style.indent->size() > 1000) return fail(Code::kOutOfRange, "tojson: an indent beyond 1000");
    style.item_separator = ",";
  }
  if (bound[2] != nullptr && !bound[2]->is(Kind::kNone)) {
    BATON_TRY_ASSIGN(std::vector<Value> separators, in.iterate(*bound[2]));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return fail(Code::kInvalidArgument, "tojson: separators must be two strings");
    }
    style.item_separator = separators[0].as_string();
    style.key_separator = separators[1].as_string();
  }
  return style;
}

Result<Value> filter_tojson(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(JsonStyle style, json_style(in, arguments));
  std::string text;
  BATON_TRY(append_json(text, input, style, in.text_limit()));
  return in.make_string(std::move(text));
}

}  // namespace

std::vector<NamedFunction> layout_filters() {
  return {
      {"indent", filter_indent}, {"center", filter_center}, {"truncate", filter_truncate}, {"tojson", filter_tojson}};
}

}  // namespace baton::text::jinja
