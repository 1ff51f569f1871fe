// A safetensors file that lies about itself must be an error that names the tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/byte_codec.h"
#include "weights/safetensors_reader.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using tensor::DType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> file_of(std::string_view header, size_t data_bytes) {
  ByteWriter out;
  out.put(static_cast<uint64_t>(header.size()));
  out.put_bytes(std::as_bytes(std::span(header)));
  auto bytes = out.take();
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

std::string error_of(std::string_view header, size_t data_bytes) {
  const auto parsed = parse_safetensors(file_of(header, data_bytes), "f.safetensors");
  return parsed.has_value() ? "parsed" : parsed.error().to_string();
}

std::vector<std::byte> small_file() {
  static const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  static const std::vector<uint16_t> b = {7, 8};
  const std::vector<TensorSource> tensors = {{"b", DType::kBF16, {2}, raw(b)},
                                             {"a", DType::kF32, {2, 3}, raw(a)},
                                             {"empty", DType::kF16, {0, 4}, {}},
                                             {"scalar", DType::kF16, {}, raw(b).first(2)}};
  return *encode_safetensors(tensors, {{"format", "pt"}});
}

TEST(Safetensors, WhatWasWrittenComesBack) {
  const auto bytes = small_file();
  const auto header = parse_safetensors(bytes, "f");
  ASSERT_TRUE(header.has_value()) << header.error().to_string();
  ASSERT_EQ(header->tensors.size(), 4u);
  const auto& a = header->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.bytes, 24);
  EXPECT_EQ(header->tensors[1].file_offset + 4, a.file_offset);
  EXPECT_EQ(header->tensors[1].file_offset % 8, 0);
  EXPECT_EQ(header->tensors[2].bytes, 0);
  EXPECT_EQ(header->tensors[3].bytes, 2);
  EXPECT_EQ(header->metadata["format"], "pt");
}

TEST(SafetensorsBroken, CutShortAtEveryByte) {
  const auto whole = small_file();
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto header = parse_safetensors(std::span(whole).first(length), "f");
    ASSERT_FALSE(header.has_value()) << length;
    ASSERT_EQ(header.error().code(), Code::kDataLoss) << header.error().to_string();
  }
}

TEST(SafetensorsBroken, EveryByteDamagedIsAnErrorOrAHeaderWithinTheFile) {
  const auto whole = small_file();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint8_t value : {0x00, 0x22, 0x2d, 0x39, 0x5b, 0x7b, 0x80, 0xff}) {
      auto bytes = whole;
      bytes[at] = std::byte{value};
      const auto header = parse_safetensors(bytes, "f");
      if (!header.has_value()) continue;
      for (const auto& tensor : header->tensors) {
        ASSERT_GE(tensor.file_offset, 8);
        ASSERT_LE(tensor.file_offset + tensor.bytes, static_cast<int64_t>(bytes.size()));
      }
    }
  }
}

TEST(SafetensorsBroken, HeaderLengths) {
  for (const uint64_t length : {uint64_t{0}, uint64_t{1} << 20, uint64_t{100'000'001}, UINT64_MAX}) {
    auto bytes = small_file();
    poke(bytes, 0, length);
    EXPECT_FALSE(parse_safetensors(bytes, "f").has_value()) << length;
  }
  EXPECT_THAT(error_of("[]", 0), HasSubstr("no JSON object begins at byte 8"));
  EXPECT_EQ(error_of("{}", 0), "parsed");
  EXPECT_EQ(error_of("{}   ", 0), "parsed");
}

TEST(SafetensorsBroken, HeaderJson) {
  EXPECT_THAT(error_of(R"({"a": nope})", 0), AllOf(HasSubstr("f.safetensors: not JSON at byte 8")));
  EXPECT_THAT(error_of(R"({"a": 1} x)", 0), HasSubstr("not JSON at byte"));
  EXPECT_THAT(error_of(R"({"a": 1e999})", 0), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("{\"\xff\": 1}", 0), HasSubstr("not JSON at byte"));
  EXPECT_THAT(error_of("{\"a\":" + std::string(100000, '['), 0), HasSubstr("nests deeper"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{}})", 4),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(error_of(R"({"__metadata__": {"x": 1}})", 0), HasSubstr("__metadata__ key x is not a string"));
}

TEST(SafetensorsBroken, HugeHeadersAreBoundedInMemoryAndMessage) {
  std::string values = R"({"a":[0)";
  for (int i = 0; i < (4 << 20); ++i) values += ",0";
  EXPECT_THAT(error_of(values + "]}", 0), HasSubstr("more than 4194304 values"));
  EXPECT_LT(error_of(R"({")" + std::string(1 << 20, 'x'), 0).size(), 800u);
}

TEST(SafetensorsBroken, TensorEntries) {
  const auto error = [](std::string_view entry, size_t data_bytes) {
    return error_of(fmt::format(R"({{"t":{}}})", entry), data_bytes);
  };
  EXPECT_EQ(error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8), "parsed");
  EXPECT_THAT(error("3", 8), HasSubstr("tensor t is not an object"));
  EXPECT_THAT(error("{}", 8), HasSubstr("tensor t has no dtype"));
  EXPECT_THAT(error(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})", 8), HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(error(R"({"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]})", 8),
              AllOf(HasSubstr("unimplemented"), HasSubstr("tensor t is F8_E5M2")));
  for (const char* dtype : {"I8", "U8", "F8_E4M3", "F8_E8M0"}) {
    const auto entry = [&](int end) {
      return fmt::format(R"({{"dtype":"{}","shape":[2,4],"data_offsets":[0,{}]}})", dtype, end);
    };
    EXPECT_EQ(error(entry(8), 8), "parsed") << dtype;
    EXPECT_THAT(error(entry(7), 7), HasSubstr("which is 8 bytes")) << dtype;
  }
  EXPECT_THAT(error(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", 8), HasSubstr("no shape"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8), HasSubstr("dimension -2"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2.5],"data_offsets":[0,8]})", 8), HasSubstr("dimension 2.5"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})", 8),
              HasSubstr("dimension 18446744073709551615"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})", 8),
              HasSubstr("overflows"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8), HasSubstr("which is 12 bytes"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8), HasSubstr("takes data bytes 8 to 0"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})", 8), HasSubstr("the file holds 8"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", 8), HasSubstr("no pair data_offsets"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 12), HasSubstr("cover 8 of 12"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})", 4),
              HasSubstr("at most 16 dimensions"));
}

TEST(SafetensorsBroken, OverlappingTensorsAndHoles) {
  EXPECT_THAT(error_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("u":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                       12),
              AllOf(HasSubstr("tensors t"), HasSubstr("and u"), HasSubstr("overlap")));
  EXPECT_THAT(error_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("u":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
                       20),
              HasSubstr("cover 16 of 20"));
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const std::vector<std::byte> data(34);
  const auto error = [](const std::vector<TensorSource>& tensors) {
    const auto bytes = encode_safetensors(tensors);
    return bytes.has_value() ? "written" : bytes.error().to_string();
  };
  EXPECT_THAT(error({{"t", DType::kQ8_0, {32}, data}}), HasSubstr("safetensors has no dtype q8_0"));
  EXPECT_THAT(error({{"t", DType::kF32, {1}, data}}), HasSubstr("which is 4 bytes, not 34"));
  EXPECT_THAT(error({{"\xff", DType::kI8, {34}, data}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(error({{"t", DType::kI8, {34}, data}, {"t", DType::kI8, {34}, data}}), HasSubstr("given twice"));
}

}  // namespace
}  // namespace baton::weights
