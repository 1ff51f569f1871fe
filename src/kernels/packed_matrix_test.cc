// Packed weights still stand for the file's values, bit for bit (goldens: tools/goldens/make_gguf_blocks.py), in
// whatever ranges they were packed; shapes that a format can't hold are errors.
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "kernels/matmul_test_data.h"

namespace baton::kernels::test {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(PackedMatrix, UnpacksToTheValuesOfTheGgufLibrary) {
  std::map<std::string, DType> by_name;
  for (DType dtype : all_types()) by_name[std::string(tensor::dtype_name(dtype))] = dtype;
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/data/kernels/gguf_blocks.txt");
  ASSERT_TRUE(file) << "the golden file is missing";
  std::map<std::string, int> seen;
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    std::string name, raw, values;
    int64_t features = 0;
    fields >> name >> features >> raw >> values;
    ASSERT_TRUE(by_name.contains(name)) << name;
    // Two rows beside others, so that a row's place in its panel matters.
    const auto row = from_hex(raw);
    const auto expected = from_hex(values);
    Random random(10);
    auto bytes = random_weights(random, by_name[name], 70 * features);
    for (size_t at : {0, 13, 69})
      std::copy(row.begin(), row.end(), bytes.begin() + static_cast<int64_t>(at * row.size()));
    const auto w = pack({.out_features = 70, .in_features = features, .dtype = by_name[name]}, bytes);
    for (int64_t at : {0, 13, 69}) {
      std::vector<float> out(static_cast<size_t>(features));
      unpack_row(w, at, out.data());
      ASSERT_EQ(std::memcmp(out.data(), expected.data(), expected.size()), 0) << name << " row " << at;
    }
    ++seen[name];
  }
  EXPECT_EQ(seen.size(), 10u);
}

TEST(PackedMatrix, PackedInRangesByThreadsIsTheSame) {
  Random random(11);
  for (DType dtype : all_types()) {
    const int64_t outputs = 100, features = 512;
    const auto bytes = random_weights(random, dtype, outputs * features);
    const MatmulSpec spec{.out_features = outputs, .in_features = features, .dtype = dtype};
    const auto whole = pack(spec, bytes);
    auto parts = PackedMatrix::reserve(spec);
    ASSERT_TRUE(parts.has_value());
    const int64_t row_bytes = tensor::dtype_bytes(dtype, features);
    std::thread first([&] { parts->pack_rows(48, 52, bytes.data() + 48 * row_bytes); });
    parts->pack_rows(0, 48, bytes.data());
    first.join();
    ASSERT_EQ(whole.bytes(), parts->bytes());
    EXPECT_EQ(std::memcmp(whole.data(), parts->data(), whole.bytes()), 0) << tensor::dtype_name(dtype);
  }
}

// Weights stay in their bit width: the packed form may cost 3 % over the file at most (scales of q4_k, q5_k).
TEST(PackedMatrix, StaysAsSmallAsTheFile) {
  for (DType dtype : all_types()) {
    const auto w = PackedMatrix::reserve({.out_features = 1024, .in_features = 1536, .dtype = dtype});
    ASSERT_TRUE(w.has_value());
    const auto file_bytes = static_cast<double>(tensor::dtype_bytes(dtype, 1024 * 1536));
    EXPECT_LE(static_cast<double>(w->bytes()), 1.03 * file_bytes) << tensor::dtype_name(dtype);
  }
}

TEST(PackedMatrix, RefusesWhatItCannotHold) {
  const auto code = [](const MatmulSpec& spec) {
    const auto matrix = PackedMatrix::reserve(spec);
    EXPECT_FALSE(matrix.has_value());
    return matrix ? Code::kInternal : matrix.error().code();
  };
  EXPECT_EQ(code({.out_features = 16, .in_features = 48, .dtype = DType::kQ4_0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.out_features = 16, .in_features = 128, .dtype = DType::kQ6_K}), Code::kInvalidArgument);
  EXPECT_EQ(code({.out_features = 0, .in_features = 32, .dtype = DType::kF32}), Code::kInvalidArgument);
  EXPECT_EQ(code({.out_features = int64_t{1} << 40, .in_features = int64_t{1} << 40}), Code::kInvalidArgument);
  EXPECT_EQ(code({.out_features = 16, .in_features = 32, .dtype = DType::kI8}), Code::kUnimplemented);
  EXPECT_EQ(
      code({.out_features = 16, .in_features = 96, .dtype = DType::kQ8_0, .k_order = KOrder::kTree, .tree_unit = 48}),
      Code::kInvalidArgument);
  EXPECT_EQ(
      code({.out_features = 16, .in_features = 512, .dtype = DType::kQ4_K, .k_order = KOrder::kTree, .tree_unit = 64}),
      Code::kInvalidArgument);
  EXPECT_EQ(code({.out_features = 16, .in_features = 64, .dtype = DType::kF32, .k_order = KOrder::kTree}),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace baton::kernels::test
