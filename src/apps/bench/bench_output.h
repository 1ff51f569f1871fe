// Where reports go: files, and the time stamp in their names.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace baton::apps {

std::string report_date();  // local time, "20260131-235959"
// Writes `json` on one line; `append`: after what is there, on a line of its own. Makes the folder.
Result<void> write_report(const std::string& path, const nlohmann::ordered_json& json, bool append = false);

}  // namespace baton::apps
