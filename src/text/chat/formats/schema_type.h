// A JSON schema read as the type that tool_typescript writes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/formats/chat_json.h"

namespace baton::text {

struct SchemaMember;

struct SchemaType {
  enum class Kind { kWord, kObject, kArray, kAnyOf };
  Kind kind = Kind::kWord;
  std::string word;                   // kWord: the type as it is written
  std::string description;            // may be of several lines
  std::string constraints;            // "maximum: 5, minimum: 1"
  std::vector<SchemaMember> members;  // kObject
  std::vector<SchemaType> types;  // kArray: of its items; kAnyOf: the alternatives; kObject: of other members, if any
};

struct SchemaMember {
  std::string name;
  bool optional = true;
  std::string default_text;  // "" if there is none
  SchemaType type;
};

// One function's schemas: the types that it defines, and whether it refers to itself.
class SchemaReader {
 public:
  // Nothing for what can't be written as a type.
  std::optional<SchemaType> read_object(const OrderedJson& schema, int depth = 0);
  std::optional<SchemaType> read(const OrderedJson& schema, int depth = 0);
  const std::vector<std::pair<std::string, const OrderedJson*>>& definitions() const { return definitions_; }
  bool refers_to_root() const { return refers_to_root_; }

 private:
  std::optional<SchemaType> read_reference(const OrderedJson& schema);
  std::optional<SchemaType> read_enum(const OrderedJson& schema);
  std::optional<SchemaType> read_typed(const OrderedJson& schema, int depth);
  std::optional<SchemaType> read_array(const OrderedJson& schema, int depth);
  bool read_members(const OrderedJson& schema, int depth, SchemaType& out);
  void define(const OrderedJson& schemas);

  std::vector<std::pair<std::string, const OrderedJson*>> definitions_;
  bool refers_to_root_ = false;
};

// str(value) of what json.loads made of it.
std::string python_str(const OrderedJson& value);

}  // namespace baton::text
