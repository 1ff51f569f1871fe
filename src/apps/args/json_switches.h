// The switches inside JSON flags: which are done, inert or refused, like the flags themselves.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::apps {

// What a JSON flag's members come to. `flag`: its name. An unknown member of --additional-config is inert with a
// warning (platform plugins invent keys); an unknown member elsewhere is an error.
struct SwitchReport {
  std::vector<std::string> inert;  // "additional-config.enable_mlapo: <reason>"
  std::vector<std::string> warnings;
};
Result<SwitchReport> check_switches(const std::string& flag, const nlohmann::json& value);

}  // namespace baton::apps
