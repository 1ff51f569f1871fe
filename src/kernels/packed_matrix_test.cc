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

// Matrices of one memory must not overlap, and outlive it; large ones have an allocation of their own.
TEST(PackedMatrix, BesideOthersInOneMemoryIsTheSame) {
  Random random(12);
  std::vector<PackedMatrix> alone, beside;
  {
    MatrixMemory memory;
    for (DType dtype : all_types()) {
      for (int64_t outputs : {20, 100, 5000}) {
        const MatmulSpec spec{.out_features = outputs, .in_features = 1024, .dtype = dtype};
        const auto bytes = random_weights(random, dtype, outputs * 1024);
        alone.push_back(pack(spec, bytes));
        auto w = PackedMatrix::reserve(spec, memory);
        ASSERT_TRUE(w) << w.error().to_string();
        ASSERT_EQ(reinterpret_cast<uintptr_t>(w->data()) % 64, 0u);
        w->pack_rows(0, outputs, bytes.data());
        beside.push_back(std::move(*w));
      }
    }
  }
  for (size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(alone[i].bytes(), beside[i].bytes());
    ASSERT_EQ(std::memcmp(alone[i].data(), beside[i].data(), alone[i].bytes()), 0) << i;
  }
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

// Matrices of one allocation do not share bytes, and outlive each other.
TEST(PackedMatrix, ManyInOneAllocationAreEachTheirOwn) {
  Random random(17);
  ComputePool pool({.threads = 1});
  for (DType dtype : all_types()) {
    const MatmulSpec spec{.out_features = 21, .in_features = 256, .dtype = dtype, .isa = isas().back()};
    const auto x = random_floats(random, 256);
    std::vector<std::vector<float>> expected;
    PackedMatrix last;
    {
      auto many = PackedMatrix::reserve_many(spec, 3);
      ASSERT_TRUE(many.has_value());
      ASSERT_EQ(many->size(), 3u);
      for (auto& matrix : *many) {
        const auto bytes = random_weights(random, dtype, 21 * 256);
        fill(matrix, bytes);
        expected.push_back(multiply(pack(spec, bytes), x, 1, pool));
      }
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>((*many)[i].data()) % 64, 0u);
        EXPECT_TRUE(same_bits(expected[i], multiply((*many)[i], x, 1, pool))) << tensor::dtype_name(dtype) << i;
      }
      last = std::move((*many)[2]);
    }
    EXPECT_TRUE(same_bits(expected[2], multiply(last, x, 1, pool))) << tensor::dtype_name(dtype);
  }
  EXPECT_TRUE(PackedMatrix::reserve_many({.out_features = 4, .in_features = 4}, 0).has_value());
  EXPECT_FALSE(PackedMatrix::reserve_many({.out_features = 4, .in_features = 4}, -1).has_value());
  EXPECT_FALSE(PackedMatrix::reserve_many({.out_features = 4, .in_features = 4}, int64_t{1} << 60).has_value());
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

// What finish says of a matrix of `dtype` whose bytes are `bytes`, 20 x 256.
std::string complaint(DType dtype, const std::vector<std::byte>& bytes) {
  auto matrix = PackedMatrix::reserve({.out_features = 20, .in_features = 256, .dtype = dtype});
  EXPECT_TRUE(matrix.has_value());
  matrix->pack_rows(0, 16, bytes.data());
  matrix->pack_rows(16, 4, bytes.data() + 16 * tensor::dtype_bytes(dtype, 256));
  const auto sound = matrix->finish();
  if (sound) return "";
  EXPECT_EQ(sound.error().code(), Code::kDataLoss);
  return sound.error().to_string();
}

TEST(PackedMatrix, NamesTheScaleThatIsNotANumber) {
  struct Case {
    DType dtype;
    size_t at;               // in the block
    std::vector<int> bytes;  // that spell a NaN or an infinity
  };
  Random random(16);
  for (const auto& c :
       {Case{DType::kFp8Block, 0, {0, 0, 0xc0, 0x7f}}, Case{DType::kFp8Block, 0, {0, 0, 0x80, 0xff}},
        Case{DType::kFp8Block, 99, {0x7f}}, Case{DType::kMxfp8, 0, {255}}, Case{DType::kMxfp8, 32, {255}},
        Case{DType::kMxfp4, 0, {255}}, Case{DType::kInt4Group32, 0, {0xc0, 0x7f}},
        Case{DType::kInt4Group32, 0, {0x80, 0xff}}, Case{DType::kQ4_0, 0, {0, 0x7c}}, Case{DType::kQ5_1, 2, {1, 0xfe}},
        Case{DType::kQ6_K, 208, {0, 0x7e}}}) {
    const auto& info = tensor::dtype_info(c.dtype);
    auto bytes = random_weights(random, c.dtype, 20 * 256);
    EXPECT_EQ(complaint(c.dtype, bytes), "") << info.name;
    const auto blocks = static_cast<size_t>(256 / info.block_elements);
    // The last block of row 17, and then the first of row 6, which is named although it was packed later or earlier.
    for (const auto& [row, block] : {std::pair<size_t, size_t>{17, blocks - 1}, {6, 0}}) {
      const size_t at = (row * blocks + block) * static_cast<size_t>(info.block_bytes) + c.at;
      for (size_t i = 0; i < c.bytes.size(); ++i) bytes[at + i] = static_cast<std::byte>(c.bytes[i]);
      const size_t first = block * static_cast<size_t>(info.block_elements);
      const std::string text = complaint(c.dtype, bytes);
      EXPECT_NE(text.find("row " + std::to_string(row) + ", inputs " + std::to_string(first) + " to "),
                std::string::npos)
          << info.name << ": " << text;
    }
  }
}

TEST(PackedMatrix, RefusesMissingAndWildChannelValues) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::byte> bytes(20 * 64);
  std::vector<float> scales(20, 0.5f);
  std::vector<int32_t> bias(20, 7);
  const auto finished = [&](DType dtype, size_t scale_count, StaticQuant quant) {
    auto matrix = PackedMatrix::reserve({.out_features = 20, .in_features = 64, .dtype = dtype});
    EXPECT_TRUE(matrix.has_value());
    matrix->pack_rows(0, 20, bytes.data());
    matrix->set_channel_scales(0, std::span(scales).first(scale_count));
    if (dtype == DType::kInt8Static) matrix->set_static(quant, bias);
    const auto sound = matrix->finish();
    return sound ? std::string() : sound.error().to_string();
  };
  const StaticQuant good{.input_scale = 0.1f, .input_offset = -128};
  for (DType dtype : {DType::kInt8Channel, DType::kInt4Channel, DType::kInt8Static}) {
    EXPECT_EQ(finished(dtype, 20, good), "");
    EXPECT_NE(finished(dtype, 19, good).find("row 19"), std::string::npos);
    scales[3] = kNan;
    EXPECT_NE(finished(dtype, 20, good).find("row 3"), std::string::npos);
    scales[3] = 0.0f;
    EXPECT_EQ(finished(dtype, 20, good), "");
  }
  for (const StaticQuant& bad :
       {StaticQuant{.input_scale = 0}, StaticQuant{.input_scale = -1}, StaticQuant{.input_scale = kNan},
        StaticQuant{.input_scale = 1, .input_offset = 128}, StaticQuant{.input_scale = 1, .input_offset = -129}}) {
    EXPECT_NE(finished(DType::kInt8Static, 20, bad).find("input scale"), std::string::npos);
  }
  bias[11] = std::numeric_limits<int32_t>::min();
  EXPECT_NE(finished(DType::kInt8Static, 20, good).find("row 11"), std::string::npos);
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
  EXPECT_EQ(code({.out_features = 16, .in_features = 64, .dtype = DType::kFp8Block}), Code::kInvalidArgument);
  EXPECT_EQ(code({.out_features = 16, .in_features = 33, .dtype = DType::kInt4Channel}), Code::kInvalidArgument);
  EXPECT_EQ(code({.out_features = 16, .in_features = 131072, .dtype = DType::kInt8Channel}), Code::kInvalidArgument);
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
