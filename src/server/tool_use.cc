#include "server/tool_use.h"

#include "wire/ordered_json.h"

namespace baton::server {
namespace {

const Json* member(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Parsed<void> check_tools(const Json& tools) {
  if (!tools.is_array()) return std::unexpected(bad_request("'tools' must be a list", "tools"));
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools.{}", i);
    const auto refuse = [&](const std::string& below, const char* wanted) {
      return std::unexpected(bad_request(fmt::format("'{}{}' {}", where, below, wanted), where + below));
    };
    if (!tools[i].is_object()) return refuse("", "must be an object");
    const Json* type = member(tools[i], "type");
    if (type != nullptr && *type != "function") return refuse(".type", "must be \"function\"");
    const Json* function = member(tools[i], "function");
    if (function == nullptr || !function->is_object()) return refuse(".function", "must be an object");
    const Json* name = member(*function, "name");
    if (name == nullptr || !name->is_string()) return refuse(".function.name", "must be a string");
    const Json* description = member(*function, "description");
    if (description != nullptr && !description->is_string()) return refuse(".function.description", "must be a string");
    const Json* parameters = member(*function, "parameters");
    if (parameters != nullptr && !parameters->is_object()) return refuse(".function.parameters", "must be an object");
  }
  return {};
}

// The function that a tool_choice object names, in vLLM's words where it names none of the tools.
Parsed<std::string> named_function(const Json& choice, const Json& tools) {
  const Json* function = member(choice, "function");
  if (function == nullptr || !function->is_object()) {
    return std::unexpected(
        bad_request("Expected field `function` in `tool_choice`. Correct usage: `{\"type\": "
                    "\"function\", \"function\": {\"name\": \"my_function\"}}`",
                    "tool_choice"));
  }
  const Json* name = member(*function, "name");
  if (name == nullptr || !name->is_string()) {
    return std::unexpected(
        bad_request("Expected field `name` in `function` in `tool_choice`. Correct usage: `{\"type\": "
                    "\"function\", \"function\": {\"name\": \"my_function\"}}`",
                    "tool_choice"));
  }
  for (const auto& tool : tools) {
    if (tool["function"]["name"] == *name) return name->get<std::string>();
  }
  return std::unexpected(
      bad_request("The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice"));
}

Parsed<void> check_choice(const Json& choice, const Json& tools) {
  if (choice.is_string() && (choice == "none" || choice == "auto")) return {};
  std::string what = "required";
  if (choice.is_object()) {
    BATON_PARSE(what, named_function(choice, tools));
  } else if (choice != "required") {
    return std::unexpected(bad_request(
        "Invalid value for `tool_choice`: only named tools, \"none\", \"auto\" or \"required\" are supported.",
        "tool_choice"));
  }
  return std::unexpected(bad_request(
      fmt::format("`tool_choice` \"{}\" forces a call, which needs structured outputs: they are not in this version of "
                  "Baton. Use \"auto\" or \"none\".",
                  what),
      "tool_choice"));
}

}  // namespace

Parsed<ToolUse> parse_tool_use(const ServerOptions& options, const Json& body, bool prefill_only) {
  ToolUse use;
  BATON_PARSE(const auto parallel, get_bool(body, "parallel_tool_calls"));
  use.parallel = parallel.value_or(true);
  const Json* tools = member(body, "tools");
  if (tools != nullptr) {
    if (auto checked = check_tools(*tools); !checked) return std::unexpected(checked.error());
  }
  const Json* choice = member(body, "tool_choice");
  if (tools == nullptr || tools->empty()) {
    if (choice != nullptr && *choice != "none" && *choice != "auto") {
      return std::unexpected(bad_request("When using `tool_choice`, `tools` must be set.", "tool_choice"));
    }
    return use;
  }
  if (choice != nullptr) {
    if (auto checked = check_choice(*choice, *tools); !checked) return std::unexpected(checked.error());
  }
  if (choice != nullptr && *choice == "none") {
    use.hide_tools = options.exclude_tools_when_tool_choice_none;
    return use;
  }
  use.calls = options.enable_auto_tool_choice && options.output_format.reads_tools();
  if (!use.calls && !prefill_only) {
    return std::unexpected(bad_request(
        "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set", "tool_choice"));
  }
  return use;
}

Parsed<void> adapt_tool_calls(Json& message, const std::string& where) {
  const auto found = message.find("tool_calls");
  if (found == message.end()) return {};
  if (found->is_null() || (found->is_array() && found->empty())) {
    message.erase(found);
    return {};
  }
  if (!found->is_array()) {
    return std::unexpected(bad_request(fmt::format("'{}.tool_calls' must be a list", where), where + ".tool_calls"));
  }
  for (size_t i = 0; i < found->size(); ++i) {
    const std::string at = fmt::format("{}.tool_calls.{}.function", where, i);
    Json& call = (*found)[i];
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      return std::unexpected(bad_request(fmt::format("'{}' must be an object", at), at));
    }
    Json& function = call["function"];
    if (!function.contains("name") || !function["name"].is_string()) {
      return std::unexpected(bad_request(fmt::format("'{}.name' must be a string", at), at + ".name"));
    }
    const Json* arguments = member(function, "arguments");
    if (arguments == nullptr || *arguments == "") {
      function["arguments"] = Json::object();
    } else if (arguments->is_string()) {
      // What is no JSON (a call that a length limit has cut) stays the text it is.
      auto parsed = wire::parse_ordered_json(arguments->get_ref<const std::string&>(), kMaxJsonDepth);
      if (parsed) function["arguments"] = std::move(*parsed);
    } else if (!arguments->is_object()) {
      return std::unexpected(
          bad_request(fmt::format("'{}.arguments' must be a JSON object, or its text", at), at + ".arguments"));
    }
  }
  return {};
}

std::optional<bool> thinking_of(const Json& variables) {
  for (const char* name : {"thinking", "enable_thinking"}) {
    const Json* value = member(variables, name);
    if (value == nullptr) continue;
    if (value->is_boolean()) return value->get<bool>();
    if (value->is_number()) return value->get<double>() != 0;
    return !value->empty() && *value != "";
  }
  return std::nullopt;
}

}  // namespace baton::server
