// Writes the seed corpora of gguf_fuzz and safetensors_fuzz:
//
//   fuzz_seeds FOLDER     makes FOLDER/gguf/* and FOLDER/safetensors/*, a few small whole files each
//   build/fuzz/src/weights/gguf_fuzz -max_len=8192 FOLDER/gguf
#include <cstdio>
#include <filesystem>

#include "weights/output_file.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

Result<void> put(const std::string& path, const std::vector<std::byte>& bytes) {
  return write_text_file(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Result<void> make_gguf_seeds(const std::string& folder) {
  BATON_TRY(put(folder + "/small", small_gguf()));
  const std::vector<std::byte> block(210);
  for (const auto& [name, dtype] : {std::pair("q4_k", tensor::DType::kQ4_K), std::pair("q6_k", tensor::DType::kQ6_K)}) {
    GgufWriter writer(64);
    writer.set_array("k.floats", std::vector<float>{1, 2});
    const auto bytes = static_cast<size_t>(tensor::dtype_info(dtype).block_bytes);
    writer.add_tensor({"t", dtype, {1, 256}, std::span(block).first(bytes)});
    BATON_TRY_ASSIGN(const auto file, writer.encode());
    BATON_TRY(put(folder + "/" + name, file));
  }
  return {};
}

Result<void> make_safetensors_seeds(const std::string& folder) {
  const std::vector<float> data = {1, 2, 3, 4};
  BATON_TRY_ASSIGN(
      const auto one,
      encode_safetensors(std::vector<TensorSource>{{"a", tensor::DType::kF32, {2, 2}, raw(data)},
                                                   {"b", tensor::DType::kBF16, {2}, raw(data).first(4)},
                                                   {"c", tensor::DType::kI64, {}, raw(data).first(8)},
                                                   {"d", tensor::DType::kF8E4M3, {2, 4}, raw(data).first(8)},
                                                   {"e", tensor::DType::kF8E8M0, {3}, raw(data).first(3)},
                                                   {"f", tensor::DType::kU8, {1, 5}, raw(data).first(5)},
                                                   {"g", tensor::DType::kI8, {0}, {}}},
                         {{"format", "pt"}}));
  BATON_TRY(put(folder + "/kinds", one));
  BATON_TRY_ASSIGN(const auto none, encode_safetensors({}));
  return put(folder + "/none", none);
}

Result<void> make_seeds(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder + "/gguf", error);
  std::filesystem::create_directories(folder + "/safetensors", error);
  if (error) return fail(Code::kNotFound, "can't create folders in {}: {}", folder, error.message());
  BATON_TRY(make_gguf_seeds(folder + "/gguf"));
  return make_safetensors_seeds(folder + "/safetensors");
}

}  // namespace
}  // namespace baton::weights

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  const auto made = baton::weights::make_seeds(argv[1]);
  if (made.has_value()) return 0;
  std::fprintf(stderr, "%s\n", made.error().to_string().c_str());
  return 1;
}
