// JSON as Python's json.dumps(ensure_ascii=False) writes it: the models were trained on that, spaces and all.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace baton::text {

struct PythonJsonStyle {
  bool compact = false;    // separators (",", ":") for (", ", ": ")
  bool sort_keys = false;  // at every level
};
// kInvalidArgument for what nests deeper than any schema should.
Result<std::string> python_json(const nlohmann::ordered_json& value, PythonJsonStyle style);

}  // namespace baton::text
