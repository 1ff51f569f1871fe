// What the tokenizer's tests share: files of tests/data/tokenizers, and a tokenizer.json turned into GGUF's form.
#pragma once

#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace baton::text {

// Of this process, so that a busy machine fails no test.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Sanitizers cost about ten times.
#ifdef BATON_SANITIZED
inline constexpr double kSlowdown = 15;
#else
inline constexpr double kSlowdown = 1;
#endif

inline std::string tokenizer_data(const std::string& name) {
  return std::string(BATON_SOURCE_DIR) + "/tests/data/tokenizers/" + name;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_text(path)); }

inline std::string from_base64(std::string_view text) {
  static constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count));
    }
  }
  return out;
}

inline GgufTokenizerData gguf_form(const nlohmann::json& tokenizer, std::string pre) {
  GgufTokenizerData data{.model = "gpt2", .pre = std::move(pre)};
  const auto& vocab = tokenizer["model"]["vocab"];
  data.tokens.resize(vocab.size());
  data.token_types.assign(vocab.size(), 1);
  for (const auto& [spelling, id] : vocab.items()) data.tokens[id.get<size_t>()] = spelling;
  for (const auto& added : tokenizer["added_tokens"]) {
    data.token_types[added["id"].get<size_t>()] = added["special"].get<bool>() ? 3 : 4;
  }
  for (const auto& merge : tokenizer["model"]["merges"]) {
    data.merges.push_back(merge.is_array() ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                                           : merge.get<std::string>());
  }
  return data;
}

}  // namespace baton::text
