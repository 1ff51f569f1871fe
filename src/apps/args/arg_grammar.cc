#include "apps/args/arg_grammar.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/args/arg_values.h"

namespace baton::apps {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::string>;

bool is_flag_token(std::string_view token) { return token.size() > 1 && token[0] == '-' && !parse_plain_float(token); }

// Compact text; bytes that are not UTF-8 become U+FFFD.
std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// "--max_model_len" to "--max-model-len": only between the dashes and the first '.' or '='.
std::string normalised(std::string token) {
  if (!token.starts_with("--")) return token;
  const size_t end = std::min(token.find_first_of(".="), token.size());
  std::replace(token.begin() + 2, token.begin() + static_cast<ptrdiff_t>(end), '_', '-');
  return token;
}

// -O3, -O 3, -O=3 and the short forms become long ones.
Tokens expand_short_forms(std::span<const std::string> arguments) {
  Tokens tokens;
  for (const auto& argument : arguments) {
    if (argument.starts_with("-O") && (argument.size() == 2 || argument[2] == '=' || std::isdigit(argument[2]))) {
      tokens.push_back("--optimization-level");
      const std::string level = argument.substr(argument.size() > 2 && argument[2] == '=' ? 3 : 2);
      if (!level.empty()) tokens.push_back(level);
      continue;
    }
    if (argument.starts_with('-') && !argument.starts_with("--")) {
      const size_t equals = std::min(argument.find('='), argument.size());
      const size_t name_end = std::min({argument.find('.'), equals, argument.size()});
      if (const auto name = short_form(argument.substr(0, name_end)); !name.empty()) {
        tokens.push_back("--" + std::string(name) + argument.substr(name_end));
        continue;
      }
    }
    tokens.push_back(argument);
  }
  return tokens;
}

// Objects merge by member, lists join; anything else is replaced, which is worth a warning.
void merge_value(json& into, json value, const std::string& flag, std::vector<std::string>& warnings) {
  if (into.is_object() && value.is_object()) {
    for (auto& [key, inner] : value.items()) merge_value(into[key], std::move(inner), flag, warnings);
  } else if (into.is_array() && value.is_array()) {
    for (auto& item : value) into.push_back(std::move(item));
  } else {
    if (!into.is_null()) warnings.push_back(fmt::format("Found duplicate keys --{}", flag));
    into = std::move(value);
  }
}

json comma_list(const std::string& text) {
  json list = json::array();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    list.push_back(parse_loose_value(text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  return list;
}

// Sets `path` of `root`; "key+" appends to a list.
void merge_dotted(json& root, std::string path, const std::string& text, const std::string& flag,
                  std::vector<std::string>& warnings) {
  const bool appends = path.ends_with('+');
  if (appends) path.pop_back();
  json* node = &root;
  for (size_t dot; (dot = path.find('.')) != std::string::npos; path.erase(0, dot + 1)) {
    node = &(*node)[path.substr(0, dot)];
    if (!node->is_object()) *node = json::object();
  }
  merge_value((*node)[path], appends ? comma_list(text) : parse_loose_value(text), flag, warnings);
}

// Takes the dotted flags out and puts one JSON argument per root at the end, where it wins.
Result<Tokens> fold_dotted(const Tokens& tokens, std::vector<std::string>& warnings) {
  Tokens kept;
  std::vector<std::pair<std::string, json>> roots;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string token = normalised(tokens[i]);
    const size_t equals = std::min(token.find('='), token.size());
    const size_t dot = token.find('.');
    if (!is_flag_token(token) || dot >= equals) {
      kept.push_back(token);
      continue;
    }
    std::string value;
    if (equals < token.size()) {
      value = token.substr(equals + 1);
    } else {
      if (i + 1 >= tokens.size()) return fail(Code::kInvalidArgument, "argument {}: expected one argument", token);
      value = tokens[++i];
    }
    const std::string root = token.substr(2, dot - 2);
    auto it = std::find_if(roots.begin(), roots.end(), [&](const auto& entry) { return entry.first == root; });
    if (it == roots.end()) it = roots.insert(roots.end(), {root, json::object()});
    merge_dotted(it->second, token.substr(dot + 1, equals - dot - 1), value, token.substr(2, equals - 2), warnings);
  }
  for (auto& [root, value] : roots) {
    kept.push_back("--" + root);
    kept.push_back(dumped(value));
  }
  return kept;
}

json yaml_to_json(const YAML::Node& node) {
  if (node.IsMap()) {
    json object = json::object();
    for (const auto& entry : node) object[entry.first.as<std::string>()] = yaml_to_json(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    json array = json::array();
    for (const auto& entry : node) array.push_back(yaml_to_json(entry));
    return array;
  }
  if (node.IsNull()) return nullptr;
  const auto text = node.as<std::string>();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (const auto integer = parse_plain_int(text)) return *integer;
  if (const auto number = parse_plain_float(text)) return *number;
  return text;
}

// The flags of a YAML file as command-line tokens; `model` comes out apart.
Result<Tokens> read_config(const std::string& path, std::optional<std::string>& model) {
  if (!path.ends_with(".yaml") && !path.ends_with(".yml")) {
    return fail(Code::kInvalidArgument, "--config {}: the file must end in .yaml or .yml", path);
  }
  Tokens tokens;
  try {
    const YAML::Node root = YAML::LoadFile(path);
    if (!root.IsMap()) return fail(Code::kInvalidArgument, "--config {}: not a map of flags", path);
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      const json value = yaml_to_json(entry.second);
      const std::string flag = normalised("--" + key);
      if (key == "model" && value.is_string()) {
        model = value.get<std::string>();
      } else if (value.is_boolean()) {
        const Flag* known = find_flag(flag.substr(2));
        if (value.get<bool>())
          tokens.push_back(flag);
        else if (known != nullptr && known->kind == FlagKind::kBool)
          tokens.push_back("--no-" + flag.substr(2));
      } else if (value.is_array()) {
        tokens.push_back(flag);
        for (const auto& item : value) tokens.push_back(item.is_string() ? item.get<std::string>() : dumped(item));
      } else if (!value.is_null()) {
        tokens.push_back(flag);
        tokens.push_back(value.is_string() ? value.get<std::string>() : dumped(value));
      }
    }
  } catch (const YAML::Exception& error) {
    return fail(Code::kInvalidArgument, "--config {}: {}", path, error.what());
  }
  return tokens;
}

struct Match {
  const Flag* flag = nullptr;
  bool negated = false;
};

// The flag of exactly this name, or the only one it is a beginning of. nullptr inside: unknown.
Result<Match> match_flag(const std::string& name) {
  const auto exact = [](std::string_view wanted) -> Match {
    if (const Flag* flag = find_flag(wanted)) return {flag, false};
    if (wanted.starts_with("no-")) {
      const Flag* flag = find_flag(wanted.substr(3));
      if (flag != nullptr && flag->kind == FlagKind::kBool) return {flag, true};
    }
    return {};
  };
  if (const Match match = exact(name); match.flag != nullptr) return match;
  std::vector<std::pair<std::string, Match>> candidates;
  for (const auto& flag : serve_flags()) {
    if (flag.name.starts_with(name)) candidates.push_back({std::string(flag.name), {&flag, false}});
    const std::string negative = "no-" + std::string(flag.name);
    if (flag.kind == FlagKind::kBool && negative.starts_with(name)) candidates.push_back({negative, {&flag, true}});
  }
  if (candidates.size() == 1) return candidates[0].second;
  if (candidates.empty()) return Match{};
  std::string names;
  for (const auto& [candidate, match] : candidates) names += (names.empty() ? "--" : ", --") + candidate;
  return fail(Code::kInvalidArgument, "ambiguous option: --{} could match {}", name, names);
}

class Walker {
 public:
  explicit Walker(ParsedArgs& parsed) : parsed_(parsed) {}

  Result<void> walk(const Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!is_flag_token(tokens[i])) {
        if (!parsed_.model && !unknown_flag_before_)
          parsed_.model = tokens[i];
        else
          unrecognised_.push_back(tokens[i]);
        continue;
      }
      BATON_TRY(take_flag(tokens, i));
    }
    if (!unrecognised_.empty() && !parsed_.help) {
      return fail(Code::kInvalidArgument, "unrecognized arguments: {}", fmt::join(unrecognised_, " "));
    }
    return {};
  }

 private:
  Result<void> take_flag(const Tokens& tokens, size_t& i) {
    unknown_flag_before_ = false;
    const std::string& token = tokens[i];
    const size_t equals = std::min(token.find('='), token.size());
    const std::string name = token.substr(std::min<size_t>(2, token.size()), equals - std::min<size_t>(2, equals));
    const auto inline_value =
        equals < token.size() ? std::optional(token.substr(equals + 1)) : std::optional<std::string>();
    if (token == "-h" || (token.starts_with("--") && name == "help")) {
      parsed_.help = inline_value.value_or("");
      return {};
    }
    if (!token.starts_with("--")) return unknown(token);
    BATON_TRY_ASSIGN(const Match match, match_flag(name));
    if (match.flag == nullptr) return unknown(token);
    const std::string full(match.flag->name);
    if (match.flag->kind == FlagKind::kBool) {
      if (inline_value) {
        return fail(Code::kInvalidArgument, "argument --{}: ignored explicit argument '{}'", full, *inline_value);
      }
      parsed_.values[full] = {match.negated ? "false" : "true"};
      return {};
    }
    std::vector<std::string> values;
    if (inline_value) {
      values.push_back(*inline_value);
    } else {
      const bool many = match.flag->kind == FlagKind::kList;
      while (i + 1 < tokens.size() && !is_flag_token(tokens[i + 1]) && (many || values.empty())) {
        values.push_back(tokens[++i]);
      }
      if (values.empty()) {
        return fail(Code::kInvalidArgument, "argument --{}: expected {} argument", full, many ? "at least one" : "one");
      }
    }
    auto& kept = parsed_.values[full];
    if (match.flag->kind == FlagKind::kAppend)
      kept.insert(kept.end(), values.begin(), values.end());
    else
      kept = std::move(values);
    return {};
  }

  Result<void> unknown(const std::string& token) {
    unrecognised_.push_back(token);
    unknown_flag_before_ = true;  // what follows may be its value, not the model
    return {};
  }

  ParsedArgs& parsed_;
  std::vector<std::string> unrecognised_;
  bool unknown_flag_before_ = false;
};

// The path after --config (one only), which is taken out of `tokens`.
Result<std::optional<std::string>> take_config_path(Tokens& tokens) {
  std::optional<std::string> path;
  for (size_t i = 0; i < tokens.size();) {
    std::optional<std::string> found;
    if (tokens[i] == "--config") {
      if (i + 1 >= tokens.size()) return fail(Code::kInvalidArgument, "argument --config: expected one argument");
      found = tokens[i + 1];
      tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(i), tokens.begin() + static_cast<ptrdiff_t>(i) + 2);
    } else if (tokens[i].starts_with("--config=")) {
      found = tokens[i].substr(9);
      tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
      continue;
    }
    if (path) return fail(Code::kInvalidArgument, "More than one config file specified!");
    path = std::move(found);
  }
  return path;
}

}  // namespace

std::string ParsedArgs::value(std::string_view name) const {
  const auto it = values.find(name);
  return it == values.end() || it->second.empty() ? std::string() : it->second.front();
}

Result<ParsedArgs> parse_arguments(std::span<const std::string> arguments) {
  ParsedArgs parsed;
  Tokens given = expand_short_forms(arguments);
  BATON_TRY_ASSIGN(const auto config, take_config_path(given));
  std::optional<std::string> config_model;
  Tokens tokens;
  if (config) {
    BATON_TRY_ASSIGN(tokens, read_config(*config, config_model));
  }
  // A list flag at the end of the file must not swallow the model: flags of the file come after it.
  Tokens all;
  const bool leads_with_model = !given.empty() && !is_flag_token(given[0]);
  if (leads_with_model) all.push_back(given[0]);
  all.insert(all.end(), tokens.begin(), tokens.end());
  all.insert(all.end(), given.begin() + (leads_with_model ? 1 : 0), given.end());
  BATON_TRY_ASSIGN(all, fold_dotted(all, parsed.warnings));

  BATON_TRY(Walker(parsed).walk(all));
  if (const auto it = parsed.values.find("model"); it != parsed.values.end()) {
    if (!parsed.model) parsed.model = it->second.front();
    parsed.warnings.push_back("--model is given as a flag: the model is a positional argument");
    parsed.values.erase(it);
  }
  if (!parsed.model) parsed.model = config_model;
  return parsed;
}

}  // namespace baton::apps
