#include "text/chat/formats/tool_typescript.h"

#include <algorithm>

#include "text/chat/formats/schema_type.h"

namespace baton::text {
namespace {

constexpr std::string_view kStep = "  ";
constexpr int kSortDepthMax = 200;

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string comment(std::string_view text, std::string_view indent) {
  std::string out;
  for (bool first = true;; first = false) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!first) out += '\n';
    if (!line.empty()) out += fmt::format("{}// {}", indent, line);
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

std::string comments_of(const SchemaType& type, std::string_view indent) {
  std::string out;
  if (!type.description.empty()) out += comment(type.description, indent) + "\n";
  if (!type.constraints.empty()) out += fmt::format("{}// {}\n", indent, type.constraints);
  return out;
}

std::string write_type(const SchemaType& type, const std::string& indent);

std::string write_member(const SchemaMember& member, const std::string& indent) {
  std::string out = comments_of(member.type, indent);
  if (!member.default_text.empty()) out += fmt::format("{}// Default: {}\n", indent, member.default_text);
  return out +
         fmt::format("{}{}{}: {}", indent, member.name, member.optional ? "?" : "", write_type(member.type, indent));
}

// The required members first, each by name.
std::string write_object(const SchemaType& type, const std::string& indent) {
  const std::string inner = indent + std::string(kStep);
  std::vector<const SchemaMember*> members;
  for (const SchemaMember& member : type.members) members.push_back(&member);
  std::sort(members.begin(), members.end(), [](const SchemaMember* a, const SchemaMember* b) {
    return std::pair(a->optional, std::string_view(a->name)) < std::pair(b->optional, std::string_view(b->name));
  });
  std::vector<std::string> lines;
  for (const SchemaMember* member : members) lines.push_back(write_member(*member, inner));
  for (const SchemaType& other : type.types) {
    lines.push_back(fmt::format("{}[k: string]: {}", inner, write_type(other, inner)));
  }
  return lines.empty() ? "{}" : fmt::format("{{\n{}\n{}}}", join(lines, ",\n"), indent);
}

std::string write_array(const SchemaType& type, const std::string& indent) {
  const std::string inner = indent + std::string(kStep);
  const SchemaType& item = type.types.front();
  const std::string comments = comments_of(item, inner);
  if (comments.empty()) return fmt::format("Array<{}>", write_type(item, indent));
  return fmt::format("Array<\n{}{}{}\n{}>", comments, inner, write_type(item, inner), indent);
}

std::string write_type(const SchemaType& type, const std::string& indent) {
  switch (type.kind) {
    case SchemaType::Kind::kObject:
      return write_object(type, indent);
    case SchemaType::Kind::kArray:
      return write_array(type, indent);
    case SchemaType::Kind::kAnyOf: {
      std::vector<std::string> alternatives;
      for (const SchemaType& one : type.types) alternatives.push_back(write_type(one, indent));
      return join(alternatives, " | ");
    }
    case SchemaType::Kind::kWord:
      break;
  }
  return type.word;
}

// The parameters of a function that refers to itself get a name; their members stay in the schema's order.
std::string root_interface(const SchemaType& parameters) {
  std::vector<std::string> lines;
  for (const SchemaMember& member : parameters.members) lines.push_back(write_member(member, std::string(kStep)));
  return lines.empty() ? "interface parameters {}" : fmt::format("interface parameters {{\n{}\n}}", join(lines, ",\n"));
}

std::optional<std::string> write_function(const OrderedJson& function) {
  static const OrderedJson kNoParameters = OrderedJson::object();
  const OrderedJson& given = chat_member(function, "parameters");
  const OrderedJson& schema = is_truthy(given) ? given : kNoParameters;
  const OrderedJson& name = chat_member(function, "name");
  const OrderedJson& description = chat_member(function, "description");
  if (is_truthy(description) && !description.is_string()) return std::nullopt;
  SchemaReader reader;
  const auto parameters = reader.read_object(schema);
  if (!parameters) return std::nullopt;

  std::vector<std::string> lines;
  if (reader.refers_to_root()) lines.push_back(root_interface(*parameters));
  const bool named_root = reader.refers_to_root();
  const auto definitions = reader.definitions();  // reading one may define more, which are not written
  for (const auto& [defined, definition] : definitions) {
    const auto type = reader.read(*definition);
    if (!type || !definition->is_object()) return std::nullopt;
    if (!type->description.empty()) lines.push_back(comment(type->description, ""));
    lines.push_back(fmt::format("interface {} {}", defined, write_type(*type, "")));
  }
  if (is_truthy(description)) lines.push_back(comment(description.get<std::string>(), ""));
  lines.push_back(fmt::format("type {} = (_: {}) => any;",
                              function.contains("name") ? python_str(name) : std::string("function"),
                              named_root ? "parameters" : write_type(*parameters, "")));
  return join(lines, "\n");
}

OrderedJson sorted_copy(const OrderedJson& value, int depth) {
  if (depth > kSortDepthMax) return value;
  if (value.is_array()) {
    OrderedJson out = OrderedJson::array();
    for (const OrderedJson& one : value) out.push_back(sorted_copy(one, depth + 1));
    return out;
  }
  if (!value.is_object()) return value;
  std::vector<std::pair<std::string, const OrderedJson*>> members;
  for (auto it = value.begin(); it != value.end(); ++it) members.emplace_back(it.key(), &it.value());
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  OrderedJson out = OrderedJson::object();
  auto& object = out.get_ref<OrderedJson::object_t&>();
  for (const auto& [key, member] : members) object.emplace_back(key, sorted_copy(*member, depth + 1));
  return out;
}

}  // namespace

std::optional<std::string> tools_to_typescript(const OrderedJson& tools) {
  if (!tools.is_array()) return std::nullopt;
  std::vector<std::string> functions;
  for (const OrderedJson& tool : tools) {
    if (!tool.is_object()) return std::nullopt;
    if (chat_member(tool, "type") != "function") continue;
    const OrderedJson& function = chat_member(tool, "function");
    if (!is_truthy(function)) continue;
    if (!function.is_object()) return std::nullopt;
    auto written = write_function(function);
    if (!written) return std::nullopt;
    functions.push_back(std::move(*written));
  }
  if (functions.empty()) return std::nullopt;
  return fmt::format("# Tools\n\n## functions\nnamespace functions {{\n{}\n}}\n", join(functions, "\n"));
}

OrderedJson deep_sorted(const OrderedJson& value) { return sorted_copy(value, 0); }

}  // namespace baton::text
