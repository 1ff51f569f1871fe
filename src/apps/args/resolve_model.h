// From what stands on the command line to a folder or file: a path, or an id in the Hugging Face or ModelScope cache.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace baton::apps {

using ReadEnvironment = std::function<std::string(const char* name)>;  // "" when unset

// kNotFound lists every place that was looked at.
Result<std::string> resolve_model(const std::string& name, const ReadEnvironment& environment);
std::string process_environment(const char* name);

}  // namespace baton::apps
