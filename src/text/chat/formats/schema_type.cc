#include "text/chat/formats/schema_type.h"

#include <algorithm>

#include "text/chat/formats/python_json.h"
#include "text/chat/jinja/py_string.h"
#include "text/chat/jinja/value.h"

namespace baton::text {
namespace {

constexpr int kDepthMax = 64;

// str() of a container shows its strings with quotes.
std::string python_repr(const OrderedJson& value) {
  if (!value.is_string()) return python_str(value);
  std::string out;
  jinja::append_string_repr(out, value.get_ref<const std::string&>());
  return out;
}

// False where the description is of a type that can't be written.
bool describe(const OrderedJson& schema, std::initializer_list<const char*> constraint_keys, SchemaType& out) {
  const OrderedJson& description = chat_member(schema, "description");
  if (is_truthy(description)) {
    if (!description.is_string()) return false;
    out.description = description.get<std::string>();
  }
  for (const char* key : constraint_keys) {  // by name
    if (!schema.contains(key)) continue;
    if (!out.constraints.empty()) out.constraints += ", ";
    out.constraints += fmt::format("{}: {}", key, python_str(schema[key]));
  }
  return true;
}

const char* union_word(const OrderedJson& name) {
  static constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"string", "string"}, {"number", "number"}, {"integer", "number"},  {"boolean", "boolean"},
      {"null", "null"},     {"object", "{}"},     {"array", "Array<any>"}};
  if (!name.is_string()) return nullptr;
  for (const auto& [key, word] : kWords) {
    if (name.get_ref<const std::string&>() == key) return word;
  }
  return nullptr;
}

bool fits_type(const OrderedJson& value, std::string_view type) {
  if (value.is_null()) return true;
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number() || value.is_boolean();
  if (type == "integer") return value.is_number_integer() || value.is_boolean();
  if (type == "boolean") return value.is_boolean();
  return true;
}

// The type that an enum's values must have; nothing for a list of types that is not one and perhaps null.
std::optional<std::string> enum_type(const OrderedJson& type) {
  const OrderedJson* one = &type;
  if (type.is_array()) {
    if (type.empty() || type.size() > 2) return std::nullopt;
    if (type.size() == 2 && type[0] != "null" && type[1] != "null") return std::nullopt;
    one = type.size() == 2 && type[0] == "null" ? &type[1] : &type[0];
  }
  return one->is_string() ? one->get<std::string>() : std::string();
}

}  // namespace

std::string python_str(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_float()) return jinja::float_text(value.get<double>());
  if (value.is_number()) return value.dump();
  std::string out(1, value.is_array() ? '[' : '{');
  const size_t start = out.size();
  for (auto it = value.begin(); it != value.end(); ++it) {
    if (out.size() > start) out += ", ";
    if (value.is_object()) out += python_repr(OrderedJson(it.key())) + ": ";
    out += python_repr(*it);
  }
  return out + (value.is_array() ? ']' : '}');
}

std::optional<SchemaType> SchemaReader::read(const OrderedJson& schema, int depth) {
  if (depth > kDepthMax) return std::nullopt;
  SchemaType type;
  if (schema.is_boolean()) {
    type.word = schema.get<bool>() ? "any" : "null";
    return type;
  }
  if (!schema.is_object()) return std::nullopt;
  if (schema.contains("$ref")) return read_reference(schema);
  if (schema.contains("anyOf")) {
    const OrderedJson& list = schema["anyOf"];
    if (!list.is_array() || !describe(schema, {}, type)) return std::nullopt;
    type.kind = SchemaType::Kind::kAnyOf;
    for (const OrderedJson& one : list) {
      auto alternative = read(one, depth + 1);
      if (!alternative) return std::nullopt;
      type.types.push_back(std::move(*alternative));
    }
    return type;
  }
  if (schema.contains("enum")) return read_enum(schema);
  if (schema.contains("type")) return read_typed(schema, depth);
  if (!schema.empty()) return std::nullopt;
  type.word = "any";
  return type;
}

std::optional<SchemaType> SchemaReader::read_reference(const OrderedJson& schema) {
  static constexpr std::string_view kPrefix = "#/$defs/";
  SchemaType type;
  const OrderedJson& reference = schema["$ref"];
  if (!reference.is_string() || !describe(schema, {}, type)) return std::nullopt;
  const std::string& target = reference.get_ref<const std::string&>();
  if (target == "#") {
    refers_to_root_ = true;
    type.word = "parameters";
    return type;
  }
  if (!target.starts_with(kPrefix)) return std::nullopt;
  type.word = target.substr(target.rfind('/') + 1);
  const auto found = std::find_if(definitions_.begin(), definitions_.end(),
                                  [&](const auto& definition) { return definition.first == type.word; });
  if (found == definitions_.end() || !found->second->is_object()) return std::nullopt;
  return type;
}

std::optional<SchemaType> SchemaReader::read_enum(const OrderedJson& schema) {
  SchemaType type;
  const OrderedJson& values = schema["enum"];
  if (!values.is_array() || !describe(schema, {}, type)) return std::nullopt;
  std::string expected;
  if (schema.contains("type")) {
    auto name = enum_type(schema["type"]);
    if (!name) return std::nullopt;
    expected = std::move(*name);
  }
  for (const OrderedJson& value : values) {
    if (!fits_type(value, expected)) return std::nullopt;
    if (!type.word.empty()) type.word += " | ";
    type.word += value.is_string() ? fmt::format("\"{}\"", value.get<std::string>()) : python_str(value);
  }
  return type;
}

std::optional<SchemaType> SchemaReader::read_typed(const OrderedJson& schema, int depth) {
  const OrderedJson& name = schema["type"];
  SchemaType type;
  if (name.is_array()) {
    if (!describe(schema, {}, type)) return std::nullopt;
    for (const OrderedJson& one : name) {
      const char* word = union_word(one);
      if (word == nullptr) return std::nullopt;
      if (!type.word.empty()) type.word += " | ";
      type.word += word;
    }
    return type;
  }
  if (name == "object") return read_object(schema, depth);
  if (name == "array") return read_array(schema, depth);
  if (!name.is_string()) return std::nullopt;
  const bool is_number = name == "number" || name == "integer";
  const bool described = name == "string" ? describe(schema, {"maxLength", "minLength", "pattern"}, type)
                         : is_number      ? describe(schema, {"maximum", "minimum"}, type)
                                          : describe(schema, {}, type);
  if (!described) return std::nullopt;
  type.word = name == "integer" ? "number" : name.get<std::string>();
  return type;
}

std::optional<SchemaType> SchemaReader::read_array(const OrderedJson& schema, int depth) {
  SchemaType type;
  type.kind = SchemaType::Kind::kArray;
  if (!describe(schema, {"maxItems", "minItems"}, type)) return std::nullopt;
  const OrderedJson& items = chat_member(schema, "items");
  if (!is_truthy(items)) {
    type.types.emplace_back().word = "any";
    return type;
  }
  auto item = read(items, depth + 1);
  if (!item) return std::nullopt;
  type.types.push_back(std::move(*item));
  return type;
}

std::optional<SchemaType> SchemaReader::read_object(const OrderedJson& schema, int depth) {
  SchemaType type;
  type.kind = SchemaType::Kind::kObject;
  if (!schema.is_object() || depth > kDepthMax || !describe(schema, {}, type)) return std::nullopt;
  define(chat_member(schema, "$defs"));
  const OrderedJson& others = chat_member(schema, "additionalProperties");
  if (!others.is_null()) {
    if (others.is_boolean()) {
      type.types.emplace_back().word = others.get<bool>() ? "any" : "never";
    } else {
      auto other = others.is_object() ? read(others, depth + 1) : std::nullopt;
      if (!other) return std::nullopt;
      type.types.push_back(std::move(*other));
    }
  }
  if (schema.contains("properties") && !read_members(schema, depth, type)) return std::nullopt;
  return type;
}

bool SchemaReader::read_members(const OrderedJson& schema, int depth, SchemaType& out) {
  const OrderedJson& properties = schema["properties"];
  const OrderedJson& required = chat_member(schema, "required");
  if (!properties.is_object() || (schema.contains("required") && !required.is_array())) return false;
  for (const auto& [name, property] : properties.items()) {
    SchemaMember member{.name = name, .default_text = "", .type = {}};
    member.optional = std::find(required.begin(), required.end(), name) == required.end();
    auto type = read(property, depth + 1);
    if (!type) return false;
    member.type = std::move(*type);
    if (const OrderedJson& value = chat_member(property, "default"); !value.is_null()) {
      const auto json = python_json(value, {});
      if (!json) return false;
      member.default_text = value.is_boolean() ? python_str(value) : *json;
    }
    out.members.push_back(std::move(member));
  }
  return true;
}

// A name that was defined before keeps its place.
void SchemaReader::define(const OrderedJson& schemas) {
  if (!schemas.is_object()) return;
  for (auto it = schemas.begin(); it != schemas.end(); ++it) {
    const auto same = [&](const auto& definition) { return definition.first == it.key(); };
    const auto found = std::find_if(definitions_.begin(), definitions_.end(), same);
    if (found != definitions_.end()) {
      found->second = &it.value();
    } else {
      definitions_.emplace_back(it.key(), &it.value());
    }
  }
}

}  // namespace baton::text
