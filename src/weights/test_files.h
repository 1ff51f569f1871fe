// What the tests of this room share: a folder that goes away, a small GGUF file in memory, and bytes to damage.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "weights/gguf_writer.h"
#include "weights/tensor_source.h"

namespace baton::weights {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton_weights_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string put(std::string_view name, std::string_view text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }
  std::string put(std::string_view name, const std::vector<std::byte>& bytes) const {
    return put(name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

 private:
  std::string path_;
};

template <typename T>
std::span<const std::byte> raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Overwrites the bytes at `offset`.
template <typename T>
void poke(std::vector<std::byte>& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

// Where `text` first stands in `bytes`; the test fails loudly if it doesn't.
inline size_t find_text(const std::vector<std::byte>& bytes, std::string_view text) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = all.find(text);
  if (at == std::string_view::npos) throw std::runtime_error("not found: " + std::string(text));
  return at;
}

// Two tensors ("a" [2, 3] f32, "b" [32] q8_0) and a key of every kind.
inline std::vector<std::byte> small_gguf() {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> b(34, 7);
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.set("k.u8", uint8_t{200});
  writer.set("k.i8", int8_t{-3});
  writer.set("k.u16", uint16_t{60000});
  writer.set("k.i16", int16_t{-300});
  writer.set("k.u32", uint32_t{4000000000u});
  writer.set("k.i32", int32_t{-7});
  writer.set("k.u64", uint64_t{1} << 63);
  writer.set("k.i64", int64_t{-1} << 40);
  writer.set("k.f32", 0.5f);
  writer.set("k.f64", 0.1);
  writer.set("k.bool", true);
  writer.set_array("k.texts", std::vector<std::string>{"x", "", "\xff"});
  writer.set_array("k.ints", std::vector<int32_t>{1, -2, 3});
  writer.add_tensor({"a", tensor::DType::kF32, {2, 3}, raw(a)});
  writer.add_tensor({"b", tensor::DType::kQ8_0, {32}, raw(b)});
  return *writer.encode();
}

}  // namespace baton::weights
