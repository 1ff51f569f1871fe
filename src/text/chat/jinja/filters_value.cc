// Filters on single values: default, numbers, attributes.
#include <charconv>
#include <cmath>

#include "text/chat/jinja/interpreter.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

namespace {

Result<Value> filter_default(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("default", arguments, {"default_value", "boolean"}));
  bool boolean = bound[1] != nullptr && bound[1]->truthy();
  if (!input.is_undefined() && (!boolean || input.truthy())) return input;
  return bound[0] != nullptr ? *bound[0] : Value::string("");
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    bool between = i > 0 && i + 1 < text.size() && text[i] == '_' && text[i - 1] != '_' && text[i + 1] != '_';
    if (!between) out += text[i];
  }
  return out;
}

std::optional<double> parse_double(std::string_view text) {
  std::string digits = without_underscores(strip(text, std::nullopt));
  std::string_view body = digits;
  if (body.starts_with('+')) body.remove_prefix(1);
  if (body.empty() || body.starts_with('+') || body.find_first_of("xX(") != std::string_view::npos) return std::nullopt;
  double value = 0;
  auto [stop, error] = std::from_chars(body.data(), body.data() + body.size(), value);
  if (stop != body.data() + body.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(body).c_str(), nullptr);
  if (error == std::errc::invalid_argument) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  std::string digits = without_underscores(strip(text, std::nullopt));
  std::string_view body = digits;
  bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  if (body.size() > 2 && body[0] == '0') {
    char prefix = static_cast<char>(body[1] | 0x20);
    int64_t named = prefix == 'x' ? 16 : (prefix == 'o' ? 8 : (prefix == 'b' ? 2 : 0));
    if (named != 0 && (named == base || base == 0)) {
      body.remove_prefix(2);
      base = named;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || body.empty() || body[0] == '-') return std::nullopt;
  int64_t value = 0;
  std::string signed_text = (negative ? "-" : "") + std::string(body);
  auto [stop, error] =
      std::from_chars(signed_text.data(), signed_text.data() + signed_text.size(), value, static_cast<int>(base));
  if (error != std::errc() || stop != signed_text.data() + signed_text.size()) return std::nullopt;
  return value;
}

Result<Value> truncated(double value, const Value& otherwise) {
  if (std::isnan(value) || std::isinf(value)) return otherwise;
  if (std::fabs(value) >= 9.2e18) return fail(Code::kOutOfRange, "int: {} is not within 64 bits", value);
  return Value::integer(static_cast<int64_t>(value));
}

Result<Value> filter_int(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("int", arguments, {"default", "base"}));
  Value otherwise = bound[0] != nullptr ? *bound[0] : Value::integer(0);
  BATON_TRY_ASSIGN(int64_t base, int_or("int", bound[1], 10));
  if (input.is_undefined()) return fail(Code::kInvalidArgument, "{}", input.undefined_message());
  if (input.is_integral()) return Value::integer(input.as_int());
  if (input.is(Kind::kFloat)) return truncated(input.as_double(), otherwise);
  if (!input.is_string()) return otherwise;
  if (auto value = parse_integer(input.as_string(), base)) return Value::integer(*value);
  if (auto value = parse_double(input.as_string())) return truncated(*value, otherwise);
  return otherwise;
}

Result<Value> filter_float(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("float", arguments, {"default"}));
  Value otherwise = bound[0] != nullptr ? *bound[0] : Value::real(0);
  if (input.is_undefined()) return fail(Code::kInvalidArgument, "{}", input.undefined_message());
  if (input.is_number()) return Value::real(input.as_double());
  if (!input.is_string()) return otherwise;
  auto value = parse_double(input.as_string());
  return value ? Value::real(*value) : otherwise;
}

Result<Value> filter_abs(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY(bind("abs", arguments, {}));
  if (input.is_undefined()) return fail(Code::kInvalidArgument, "{}", input.undefined_message());
  if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.as_double()));
  if (!input.is_integral()) {
    return fail(Code::kInvalidArgument, "bad operand type for abs(): '{}'", type_name(input));
  }
  if (input.as_int() == INT64_MIN) return fail(Code::kOutOfRange, "abs: the result is not within 64 bits");
  return Value::integer(std::abs(input.as_int()));
}

double round_half_even(double value, int64_t precision) {
  if (std::isnan(value) || std::isinf(value) || precision > 300) return value;
  if (precision >= 0) return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(precision)).c_str(), nullptr);
  double unit = std::pow(10.0, -static_cast<double>(precision));
  return std::isinf(unit) ? 0.0 : std::nearbyint(value / unit) * unit;
}

Result<Value> filter_round(Interpreter&, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("round", arguments, {"precision", "method"}));
  BATON_TRY_ASSIGN(int64_t precision, int_or("round", bound[0], 0));
  std::string_view method = "common";
  if (bound[1] != nullptr) {
    BATON_TRY_ASSIGN(method, need_string("round", *bound[1]));
  }
  if (input.is_undefined()) return fail(Code::kInvalidArgument, "{}", input.undefined_message());
  if (!input.is_number()) {
    return fail(Code::kInvalidArgument, "type {} doesn't define __round__ method", type_name(input));
  }
  if (method == "common") {
    if (input.is_integral() && precision >= 0) return Value::integer(input.as_int());
    double rounded = round_half_even(input.as_double(), precision);
    if (!input.is_integral()) return Value::real(rounded);
    if (std::fabs(rounded) >= 0x1p63) return fail(Code::kOutOfRange, "round: the result is not within 64 bits");
    return Value::integer(static_cast<int64_t>(rounded));
  }
  if (method != "ceil" && method != "floor") {
    return fail(Code::kInvalidArgument, "method must be common, ceil or floor");
  }
  double unit = std::pow(10.0, static_cast<double>(precision));
  double scaled = input.as_double() * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Result<Value> filter_attr(Interpreter& in, const Value& input, Arguments& arguments) {
  BATON_TRY_ASSIGN(auto bound, bind("attr", arguments, {"name"}, 1));
  BATON_TRY_ASSIGN(std::string name, in.to_str(*bound[0]));
  bool item_only = input.is(Kind::kDict) && find_dict_method(name) == nullptr;
  if (item_only) return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name));
  return in.get_attribute(input, name);
}

}  // namespace

std::vector<NamedFunction> value_filters() {
  return {{"default", filter_default}, {"d", filter_default},   {"int", filter_int},  {"float", filter_float},
          {"abs", filter_abs},         {"round", filter_round}, {"attr", filter_attr}};
}

}  // namespace baton::text::jinja
