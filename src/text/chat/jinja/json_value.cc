#include "text/chat/jinja/json_value.h"

#include <cmath>

#include "text/chat/jinja/merge_sort.h"
#include "text/chat/jinja/py_string.h"

namespace baton::text::jinja {

namespace {

constexpr int kJsonDepthMax = 200;

Result<Value> convert(Interpreter& in, const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kJsonDepthMax) {
    return fail(Code::kInvalidArgument, "a template variable is nested more than {} levels deep", kJsonDepthMax);
  }
  switch (json.type()) {
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) {
        return fail(Code::kInvalidArgument, "the integer {} of a template variable is not within 64 signed bits",
                    number);
      }
      return Value::integer(static_cast<int64_t>(number));
    }
    case Type::number_float:
      return Value::real(json.get<double>());
    case Type::string:
      return in.make_string(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& element : json) {
        BATON_TRY_ASSIGN(Value item, convert(in, element, depth + 1));
        items.push_back(std::move(item));
      }
      return in.make_list(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [name, element] : json.items()) {
        BATON_TRY_ASSIGN(Value key, in.make_string(name));
        BATON_TRY_ASSIGN(Value value, convert(in, element, depth + 1));
        dict.set(std::move(key), std::move(value));
      }
      return in.make_dict(std::move(dict));
    }
    default:
      return Value::none();
  }
}

void append_escaped(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    CodePoint point = code_point_at(text, at);
    char32_t c = point.value;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c == '\f') {
      out += "\\f";
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7f && c < 0x10000 && c != 0x7f)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (ensure_ascii && c >= 0x10000) {
      uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    } else {
      out += text.substr(at, point.bytes);
    }
    at += point.bytes;
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonStyle& style, TextLimit limit) : out_(out), style_(style), limit_(limit) {}

  Result<void> write(const Value& value, int depth) {
    if (out_.size() > limit_.bytes_max)
      return fail(Code::kOutOfRange, "the text grows beyond {} bytes", limit_.bytes_max);
    switch (value.kind()) {
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        out_ += scalar(value);
        return {};
      case Kind::kString:
        append_escaped(out_, value.as_string(), style_.ensure_ascii);
        return {};
      case Kind::kList:
      case Kind::kTuple:
        return write_list(value.as_sequence().items, depth);
      case Kind::kDict:
        return write_dict(value.as_dict(), depth);
      default:
        return fail(Code::kInvalidArgument, "Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is(Kind::kNone)) return "null";
    if (value.is(Kind::kBool)) return value.as_bool() ? "true" : "false";
    if (value.is(Kind::kInt)) return std::to_string(value.as_int());
    double number = value.as_double();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  Result<void> write_list(const std::vector<Value>& items, int depth) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      BATON_TRY(write(items[i], depth + 1));
    }
    if (!items.empty()) new_line(depth);
    out_ += ']';
    return {};
  }

  Result<void> write_dict(const Dict& dict, int depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      BATON_TRY(merge_sort(entries, [](const auto* a, const auto* b) -> Result<bool> {
        BATON_TRY_ASSIGN(int order, compare(a->first, b->first, "<"));
        return order < 0;
      }));
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      const Value& key = entries[i]->first;
      if (!key.is_string() && !key.is_number() && !key.is(Kind::kNone)) {
        return fail(Code::kInvalidArgument, "keys must be str, int, float, bool or None, not {}", type_name(key));
      }
      append_escaped(out_, key.is_string() ? key.as_string() : scalar(key), style_.ensure_ascii);
      out_ += style_.key_separator;
      BATON_TRY(write(entries[i]->second, depth + 1));
    }
    if (!entries.empty()) new_line(depth);
    out_ += '}';
    return {};
  }

  std::string& out_;
  const JsonStyle& style_;
  TextLimit limit_;
};

}  // namespace

Result<Value> value_from_json(Interpreter& interpreter, const nlohmann::ordered_json& json) {
  return convert(interpreter, json, 0);
}

Result<void> append_json(std::string& out, const Value& value, const JsonStyle& style, TextLimit limit) {
  return JsonWriter(out, style, limit).write(value, 0);
}

}  // namespace baton::text::jinja
