// Reads typed values out of a checkpoint's configuration. The first mistake is kept, with the key that has it, and
// comes back from finish(); what was read after it means nothing. One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::models {

class ConfigReader {
 public:
  // `where` opens each message: "config.json", "GGUF metadata". `prefix` is put before keys: "llama.".
  ConfigReader(const nlohmann::json& object, std::string where, std::string prefix = "")
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

  // A key that is absent or null.
  bool absent(std::string_view key) const { return find(key) == nullptr; }
  // Required, an integer in [1, max].
  int64_t positive(std::string_view key, int64_t max = int64_t{1} << 31);
  int64_t positive_or(std::string_view key, int64_t fallback, int64_t max = int64_t{1} << 31);
  // Required, finite and above 0.
  double positive_real(std::string_view key);
  double positive_real_or(std::string_view key, double fallback);
  bool flag_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string fallback);
  // The object under `key`, or null.
  const nlohmann::json* object(std::string_view key);

  template <typename... Args>
  void refuse(Code code, fmt::format_string<Args...> format, Args&&... args) {
    if (!mistake_)
      mistake_ = Status(code, fmt::format("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...)));
  }
  void take(const ConfigReader& other) {
    if (!mistake_) mistake_ = other.mistake_;
  }
  std::string full_key(std::string_view key) const { return prefix_ + std::string(key); }
  const std::string& where() const { return where_; }
  Result<void> finish() const {
    if (mistake_) return fail(*mistake_);
    return {};
  }

 private:
  const nlohmann::json* find(std::string_view key) const;
  void wrong_type(std::string_view key, std::string_view wanted, const nlohmann::json& found);

  const nlohmann::json& object_;
  std::string where_, prefix_;
  std::optional<Status> mistake_;
};

}  // namespace baton::models
