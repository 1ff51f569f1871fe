// Reads just the tokenizer of a GGUF file, for tests of this room, which may not use the weights room. Trusts the file.
#pragma once

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace baton::text {

class GgufForTest {
 public:
  static GgufTokenizerData read(const std::string& path) {
    GgufForTest reader(path);
    reader.skip(4 + 4 + 8);
    const auto count = reader.number<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) reader.entry();
    return std::move(reader.data_);
  }

 private:
  enum Type : uint32_t { kString = 8, kArray = 9 };
  explicit GgufForTest(const std::string& path) : file_(path, std::ios::binary) {}
  template <typename T>
  T number() {
    T value{};
    file_.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string string() {
    std::string text(number<uint64_t>(), '\0');
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }
  void skip(int64_t bytes) { file_.seekg(bytes, std::ios::cur); }
  static int64_t size_of(uint32_t type) {
    static constexpr int64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kSizes[type];
  }

  void array(const std::string& key) {
    const auto type = number<uint32_t>();
    const auto count = number<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      if (type == kString) {
        std::string text = string();
        if (key == "tokens") data_.tokens.push_back(std::move(text));
        if (key == "merges") data_.merges.push_back(std::move(text));
      } else if (key == "token_type") {
        data_.token_types.push_back(number<int32_t>());
      } else if (key == "scores") {
        data_.scores.push_back(number<float>());
      } else {
        skip(size_of(type));
      }
    }
  }

  void entry() {
    std::string key = string();
    const auto type = number<uint32_t>();
    if (key.starts_with("tokenizer.ggml.")) key.erase(0, 15);
    if (type == kArray) return array(key);
    if (type == kString) {
      const std::string text = string();
      if (key == "model") data_.model = text;
      if (key == "pre") data_.pre = text;
      return;
    }
    if (key == "bos_token_id") return void(data_.bos_id = number<int32_t>());
    if (key == "eos_token_id") return void(data_.eos_id = number<int32_t>());
    if (key == "unknown_token_id") return void(data_.unk_id = number<int32_t>());
    if (key == "add_bos_token") return void(data_.add_bos = number<uint8_t>() != 0);
    if (key == "add_space_prefix") return void(data_.add_space_prefix = number<uint8_t>() != 0);
    skip(size_of(type));
  }

  std::ifstream file_;
  GgufTokenizerData data_;
};

}  // namespace baton::text
