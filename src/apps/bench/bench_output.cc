#include "apps/bench/bench_output.h"

#include <ctime>
#include <filesystem>
#include <fstream>

namespace baton::apps {

std::string report_date() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &local);
  return text;
}

Result<void> write_report(const std::string& path, const nlohmann::ordered_json& json, bool append) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const bool more = append && std::filesystem::exists(path, error) && std::filesystem::file_size(path, error) > 0;
  std::ofstream file(path, append ? std::ios::app : std::ios::trunc);
  file << (more ? "\n" : "") << json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  file.close();
  if (!file) return fail(Code::kUnavailable, "{}: can't be written", path);
  return {};
}

}  // namespace baton::apps
