// Folders in Hugging Face's layout: what is missing, mapped wrongly or malicious is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/checkpoint.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using tensor::DType;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::byte> shard(const std::vector<std::string>& names, float value = 1) {
  const std::vector<float> data = {value};
  std::vector<TensorSource> tensors;
  for (const auto& name : names) tensors.push_back({name, DType::kF32, {1}, raw(data)});
  return *encode_safetensors(tensors);
}

std::string error_of(const TestFolder& folder) {
  const auto checkpoint = open_checkpoint(folder.path());
  return checkpoint.has_value() ? "opened" : checkpoint.error().to_string();
}

TEST(HuggingFaceFolder, ConfigIsRequiredAndOthersAreNot) {
  TestFolder folder;
  EXPECT_THAT(error_of(folder), AllOf(HasSubstr("not_found"), HasSubstr(folder.path() + " has no config.json")));
  folder.put("x.gguf", "");
  EXPECT_THAT(error_of(folder), HasSubstr("give its own path, such as " + folder.file("x.gguf")));
  folder.put("config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(error_of(folder), HasSubstr("0 *.safetensors files"));
  folder.put("model.safetensors", shard({"a"}));
  EXPECT_EQ(error_of(folder), "opened");
  folder.put("generation_config.json", R"({"temperature": 0.6})");
  folder.put("tokenizer_config.json", R"({"bos_token": "<s>", "bos_token": "<t>"})");
  const auto checkpoint = open_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  EXPECT_EQ((*checkpoint)->format(), Checkpoint::Format::kHuggingFace);
  EXPECT_EQ((*checkpoint)->config()["model_type"], "llama");
  EXPECT_EQ((*checkpoint)->generation_config()["temperature"], 0.6);
  EXPECT_EQ((*checkpoint)->tokenizer_config()["bos_token"], "<t>") << "the last of a repeated key wins, as in Python";
}

TEST(HuggingFaceFolder, BrokenJsonIsNamedWithItsByte) {
  TestFolder folder;
  folder.put("model.safetensors", shard({"a"}));
  folder.put("config.json", R"({"model_type": llama})");
  EXPECT_THAT(error_of(folder), AllOf(HasSubstr("config.json: not JSON at byte 16")));
  folder.put("config.json", "[1]");
  EXPECT_THAT(error_of(folder), HasSubstr("config.json must hold a JSON object, not array"));
  folder.put("config.json", "");
  EXPECT_THAT(error_of(folder), HasSubstr("config.json: not JSON at byte"));
  folder.put("config.json", "{}");
  folder.put("generation_config.json", "{");
  EXPECT_THAT(error_of(folder), HasSubstr("generation_config.json: not JSON"));
  std::filesystem::remove(folder.file("config.json"));
  std::filesystem::create_directory(folder.file("config.json"));
  EXPECT_THAT(error_of(folder), HasSubstr("config.json is not a regular file"));
}

TEST(HuggingFaceFolder, TheIndexDecides) {
  TestFolder folder;
  folder.put("config.json", "{}");
  folder.put("one.safetensors", shard({"a", "b"}, 1));
  folder.put("two.safetensors", shard({"b", "c", "unlisted"}, 2));
  folder.put("three.safetensors", "not read: the index does not name it");
  folder.put("model.safetensors.index.json",
             R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}})");
  const auto checkpoint = open_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  EXPECT_EQ((*checkpoint)->tensors().size(), 4u);
  float value = 0;
  std::memcpy(&value, (*checkpoint)->tensors().at("b").data, 4);
  EXPECT_EQ(value, 2);
}

TEST(HuggingFaceFolder, AnIndexThatLies) {
  TestFolder folder;
  folder.put("config.json", "{}");
  folder.put("one.safetensors", shard({"a"}));
  const auto with_index = [&](std::string_view index) {
    folder.put("model.safetensors.index.json", index);
    return error_of(folder);
  };
  EXPECT_EQ(with_index(R"({"weight_map": {"a": "one.safetensors"}})"), "opened");
  EXPECT_THAT(with_index(R"({"weight_map": {"a": "gone.safetensors"}})"), HasSubstr("gone.safetensors does not exist"));
  EXPECT_THAT(with_index(R"({"weight_map": {"z": "one.safetensors"}})"),
              HasSubstr("tensor z is not in one.safetensors"));
  EXPECT_THAT(with_index(R"({"metadata": {}})"), HasSubstr("has no weight_map"));
  EXPECT_THAT(with_index(R"({"weight_map": {"a": 1}})"), HasSubstr("sends tensor a to 1"));
  for (const char* name : {"../one.safetensors", "/etc/one.safetensors", "sub/one.safetensors", "..", "",
                           ".safetensors", "one.bin", "one\\\\two.safetensors", "one\\u0000.safetensors"}) {
    EXPECT_THAT(with_index(fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", name)), HasSubstr("is not the name of a"))
        << name;
  }
}

TEST(HuggingFaceFolder, ShardsWithoutAnIndex) {
  TestFolder folder;
  folder.put("config.json", "{}");
  folder.put("one.safetensors", shard({"a"}));
  folder.put("two.safetensors", shard({"b"}));
  EXPECT_EQ((*open_checkpoint(folder.path()))->tensors().size(), 2u);
  folder.put("two.safetensors", shard({"a"}));
  EXPECT_THAT(error_of(folder),
              AllOf(HasSubstr("two.safetensors"), HasSubstr("tensor a is in"), HasSubstr("one.safetensors too")));
  folder.put("model.safetensors", shard({"c"}));
  EXPECT_TRUE((*open_checkpoint(folder.path()))->tensors().contains("c")) << "model.safetensors alone";
}

TEST(HuggingFaceFolder, SymbolicLinksAsInTheHubsCacheAreFollowed) {
  TestFolder blobs;
  TestFolder folder;
  std::filesystem::create_symlink(blobs.put("0001", "{}"), folder.file("config.json"));
  std::filesystem::create_symlink(blobs.put("0002", shard({"a"})), folder.file("model.safetensors"));
  EXPECT_EQ(error_of(folder), "opened");
  std::filesystem::remove(blobs.file("0002"));
  EXPECT_THAT(error_of(folder), HasSubstr("model.safetensors does not exist")) << "a dangling link";
}

}  // namespace
}  // namespace baton::weights
