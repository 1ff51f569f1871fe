// "%s" % x and "{}".format(x).
#include "text/chat/jinja/format_spec.h"
#include "text/chat/jinja/operators.h"
#include "text/chat/jinja/py_string.h"

namespace baton::text::jinja {

namespace {

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, std::string_view format, const Value& arguments)
      : interpreter_(interpreter), format_(format), arguments_(arguments) {}

  Result<Value> run() {
    while (at_ < format_.size()) {
      size_t percent = format_.find('%', at_);
      out_ += format_.substr(at_, percent - at_);
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      BATON_TRY(field());
      BATON_TRY(interpreter_.spend_steps(1));
      if (out_.size() > interpreter_.limits().text_bytes_max) return fail(Code::kOutOfRange, "the text grows too long");
    }
    bool single_left = !arguments_.is(Kind::kTuple) && !arguments_.is(Kind::kDict) && used_ == 0;
    bool tuple_left = arguments_.is(Kind::kTuple) && used_ < arguments_.as_sequence().items.size();
    if (single_left || tuple_left) {
      return fail(Code::kInvalidArgument, "not all arguments converted during string formatting");
    }
    return interpreter_.make_string(std::move(out_));
  }

 private:
  char peek() const { return at_ < format_.size() ? format_[at_] : '\0'; }

  Result<Value> next_argument() {
    if (arguments_.is(Kind::kTuple)) {
      const auto& items = arguments_.as_sequence().items;
      if (used_ < items.size()) return items[used_++];
    } else if (used_ == 0) {
      ++used_;
      return arguments_;
    }
    return fail(Code::kInvalidArgument, "not enough arguments for format string");
  }

  Result<Value> keyed_argument() {
    size_t close = format_.find(')', at_);
    if (close == std::string_view::npos) return fail(Code::kInvalidArgument, "incomplete format key");
    std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (!arguments_.is(Kind::kDict)) return fail(Code::kInvalidArgument, "format requires a mapping");
    const Value* found = arguments_.as_dict().find(key);
    if (found == nullptr) return fail(Code::kInvalidArgument, "'{}'", key);
    return *found;
  }

  Result<int> number() {
    if (peek() == '*') {
      ++at_;
      BATON_TRY_ASSIGN(Value value, next_argument());
      if (!value.is_integral() || value.as_int() > kFormatWidthMax || value.as_int() < -kFormatWidthMax) {
        return fail(Code::kInvalidArgument, "* wants int");
      }
      return static_cast<int>(value.as_int());
    }
    int value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min(value * 10 + (format_[at_++] - '0'), kFormatWidthMax + 1);
    if (value > kFormatWidthMax) return fail(Code::kOutOfRange, "a format field wider than {}", kFormatWidthMax);
    return value;
  }

  Result<void> field() {
    FormatSpec spec;
    spec.align = '>';
    std::optional<Value> keyed;
    if (peek() == '(') {
      BATON_TRY_ASSIGN(keyed, keyed_argument());
    }
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos && peek() != '\0'; ++at_) {
      if (peek() == '-') spec.align = '<';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
      if (peek() == '#') spec.alternate = true;
      if (peek() == '0') spec.fill = "0";
    }
    BATON_TRY_ASSIGN(spec.width, number());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      BATON_TRY_ASSIGN(spec.precision, number());
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    if (at_ >= format_.size()) return fail(Code::kInvalidArgument, "incomplete format");
    spec.type = format_[at_++];
    if (spec.type == '%') {
      out_ += '%';
      return {};
    }
    Value value;
    if (keyed) {
      value = *keyed;
    } else {
      BATON_TRY_ASSIGN(value, next_argument());
    }
    return append_field(value, spec);
  }

  Result<void> append_field(const Value& value, FormatSpec spec) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      std::string text;
      if (spec.type == 's') {
        BATON_TRY(append_str(text, value, interpreter_.text_limit()));
      } else {
        BATON_TRY(append_repr(text, value, interpreter_.text_limit()));
      }
      if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
      spec.fill = " ";
      out_ += pad_field(std::move(text), spec, false);
      return {};
    }
    if (spec.type == 'c' && value.is_string() && code_point_count(value.as_string()) == 1) {
      spec.fill = " ";
      out_ += pad_field(value.as_string(), spec, false);
      return {};
    }
    if (std::string_view("diuoxXcEeFfGg").find(spec.type) == std::string_view::npos) {
      return fail(Code::kInvalidArgument, "unsupported format character '{}'", spec.type);
    }
    if (value.is_undefined()) return fail(Code::kInvalidArgument, "{}", value.undefined_message());
    Value number = value;
    if (value.is(Kind::kFloat) && std::string_view("diu").find(spec.type) != std::string_view::npos) {
      BATON_TRY_ASSIGN(number, interpreter_.call_filter("int", value, {}));
    }
    if (spec.fill == "0") {
      if (spec.align == '<') {
        spec.fill = " ";
      } else {
        spec.align = '=';
      }
    }
    BATON_TRY_ASSIGN(std::string text, format_number(number, spec));
    out_ += text;
    return {};
  }

  Interpreter& interpreter_;
  std::string_view format_;
  const Value& arguments_;
  size_t at_ = 0;
  size_t used_ = 0;
  std::string out_;
};

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, std::string_view format, const Arguments& arguments)
      : interpreter_(interpreter), format_(format), arguments_(arguments) {}

  Result<Value> run() {
    for (size_t at = 0; at < format_.size();) {
      char c = format_[at];
      if (c != '{' && c != '}') {
        out_ += c;
        ++at;
      } else if (at + 1 < format_.size() && format_[at + 1] == c) {
        out_ += c;
        at += 2;
      } else if (c == '}') {
        return fail(Code::kInvalidArgument, "Single '}}' encountered in format string");
      } else {
        size_t close = format_.find('}', at);
        if (close == std::string_view::npos) {
          return fail(Code::kInvalidArgument, "expected '}}' before end of string");
        }
        BATON_TRY(field(format_.substr(at + 1, close - at - 1)));
        at = close + 1;
      }
      if (out_.size() > interpreter_.limits().text_bytes_max) return fail(Code::kOutOfRange, "the text grows too long");
    }
    return interpreter_.make_string(std::move(out_));
  }

 private:
  Result<Value> base_value(std::string_view name) {
    if (name.empty()) name = numbers_.emplace_back(std::to_string(automatic_++));
    if (name.find_first_not_of("0123456789") == std::string_view::npos) {
      size_t index = 0;
      for (char c : name.substr(0, 9)) index = index * 10 + static_cast<size_t>(c - '0');
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      return fail(Code::kInvalidArgument, "Replacement index {} out of range for positional args tuple", index);
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return fail(Code::kInvalidArgument, "'{}'", name);
  }

  // "0.name[key].other"
  Result<Value> resolve(std::string_view path) {
    size_t end = std::min(path.find('.'), path.find('['));
    BATON_TRY_ASSIGN(Value value, base_value(path.substr(0, end)));
    while (end < path.size()) {
      path = path.substr(end);
      bool subscript = path[0] == '[';
      size_t stop = subscript ? path.find(']') : path.find_first_of(".[", 1);
      if (subscript && stop == std::string_view::npos) {
        return fail(Code::kInvalidArgument, "Missing ']' in format string");
      }
      std::string_view name = path.substr(1, stop == std::string_view::npos ? stop : stop - 1);
      if (!subscript) {
        BATON_TRY_ASSIGN(value, interpreter_.get_attribute(value, name));
      } else {
        bool digits = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
        Value key = digits ? Value::integer(std::stoll(std::string(name))) : Value::string(std::string(name));
        BATON_TRY_ASSIGN(value, interpreter_.get_item(value, key));
      }
      end = stop == std::string_view::npos ? path.size() : stop + (subscript ? 1 : 0);
    }
    return value;
  }

  Result<void> field(std::string_view body) {
    BATON_TRY(interpreter_.spend_steps(1));
    size_t colon = body.find(':');
    std::string_view spec_text = colon == std::string_view::npos ? std::string_view() : body.substr(colon + 1);
    std::string_view path = body.substr(0, colon);
    char conversion = '\0';
    if (size_t mark = path.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != path.size() || std::string_view("sra").find(path[mark + 1]) == std::string_view::npos) {
        return fail(Code::kInvalidArgument, "bad conversion in format string '{}'", body);
      }
      conversion = path[mark + 1];
      path = path.substr(0, mark);
    }
    BATON_TRY_ASSIGN(Value value, resolve(path));
    BATON_TRY_ASSIGN(FormatSpec spec, parse_format_spec(spec_text));
    bool plain_number = value.is_number() && conversion == '\0' && !(value.is(Kind::kBool) && spec_text.empty());
    if (plain_number) {
      BATON_TRY_ASSIGN(std::string text, format_number(value, spec));
      out_ += text;
      return {};
    }
    std::string text;
    if (conversion == 'r' || conversion == 'a') {
      BATON_TRY(append_repr(text, value, interpreter_.text_limit()));
    } else {
      BATON_TRY(append_str(text, value, interpreter_.text_limit()));
    }
    if (spec.type != '\0' && spec.type != 's') {
      return fail(Code::kInvalidArgument, "Unknown format code '{}' for object of type '{}'", spec.type,
                  type_name(value));
    }
    if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
    out_ += pad_field(std::move(text), spec, false);
    return {};
  }

  Interpreter& interpreter_;
  std::string_view format_;
  const Arguments& arguments_;
  std::vector<std::string> numbers_;
  size_t automatic_ = 0;
  std::string out_;
};

}  // namespace

Result<Value> format_percent(Interpreter& interpreter, std::string_view format, const Value& arguments) {
  return PercentFormatter(interpreter, format, arguments).run();
}

Result<Value> format_braces(Interpreter& interpreter, std::string_view format, const Arguments& arguments) {
  return BraceFormatter(interpreter, format, arguments).run();
}

}  // namespace baton::text::jinja
