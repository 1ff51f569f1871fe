#include "apps/args/resolve_model.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace baton::apps {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return true;
  return fs::exists(path / "config.json", error);
}

std::string or_default(std::string value, const std::string& fallback) { return value.empty() ? fallback : value; }

// <hub>/models--A--B/snapshots/<commit in refs/main, else the newest>.
std::vector<fs::path> hugging_face_places(const std::string& name, const ReadEnvironment& environment) {
  const std::string home = or_default(environment("HOME"), "/root");
  const std::string cache = or_default(environment("XDG_CACHE_HOME"), home + "/.cache");
  const std::string hf_home = or_default(environment("HF_HOME"), cache + "/huggingface");
  const fs::path hub = or_default(environment("HF_HUB_CACHE"), hf_home + "/hub");
  std::string folder = "models--" + name;
  for (size_t slash; (slash = folder.find('/')) != std::string::npos;) folder.replace(slash, 1, "--");
  const fs::path snapshots = hub / folder / "snapshots";
  std::ifstream main_ref(hub / folder / "refs" / "main");
  std::string commit;
  if (main_ref >> commit && commit.find_first_of("/.") == std::string::npos) return {snapshots / commit};
  std::vector<fs::path> places;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(snapshots, error)) places.push_back(entry.path());
  std::sort(places.begin(), places.end());
  if (places.empty()) places.push_back(snapshots);
  return places;
}

std::vector<fs::path> modelscope_places(const std::string& name, const ReadEnvironment& environment) {
  const std::string home = or_default(environment("HOME"), "/root");
  const fs::path cache = or_default(environment("MODELSCOPE_CACHE"), home + "/.cache/modelscope");
  // ModelScope writes '.' in a name as "___".
  std::string plain = name;
  for (size_t dot; (dot = plain.find('.')) != std::string::npos;) plain.replace(dot, 1, "___");
  std::vector<fs::path> places;
  for (const std::string& spelled : {name, plain}) {
    for (const char* below : {"hub/models", "hub", "models", ""}) places.push_back(cache / below / spelled);
  }
  return places;
}

}  // namespace

std::string process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> resolve_model(const std::string& name, const ReadEnvironment& environment) {
  if (name.empty()) return fail(Code::kInvalidArgument, "no model is given: baton serve MODEL");
  std::error_code error;
  if (fs::is_regular_file(name, error)) return name;
  if (fs::is_directory(name, error)) {
    if (is_model(name)) return name;
    return fail(Code::kNotFound, "the folder {} has no config.json: it is not a model (for a GGUF model name the file)",
                name);
  }
  std::vector<fs::path> places{name};
  const bool is_id = std::count(name.begin(), name.end(), '/') <= 1 && !name.starts_with('/') &&
                     !name.starts_with('.') && name.find("..") == std::string::npos;
  if (is_id) {
    for (auto& place : hugging_face_places(name, environment)) places.push_back(std::move(place));
    for (auto& place : modelscope_places(name, environment)) places.push_back(std::move(place));
  }
  for (const auto& place : places) {
    if (is_model(place)) return place.string();
  }
  std::string looked;
  for (const auto& place : places) looked += "\n  " + place.string();
  return fail(Code::kNotFound, "there is no model '{}' (Baton downloads nothing). Looked at:{}", name, looked);
}

}  // namespace baton::apps
