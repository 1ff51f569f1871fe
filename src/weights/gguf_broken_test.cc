// A GGUF file that lies about itself must be an error that says where, never a crash, a hang or a huge allocation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/byte_codec.h"
#include "weights/gguf_reader.h"
#include "weights/test_files.h"

namespace baton::weights {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const std::vector<std::byte>& bytes) {
  const auto header = parse_gguf(bytes, "f.gguf");
  return header.has_value() ? "parsed" : header.error().to_string();
}

// A header written by hand, for what the writer refuses to write.
class Raw {
 public:
  Raw(uint64_t tensors, uint64_t pairs) {
    out_.put(kGgufMagic);
    out_.put(uint32_t{3});
    out_.put(tensors);
    out_.put(pairs);
  }
  Raw& text(std::string_view value) {
    out_.put(static_cast<uint64_t>(value.size()));
    out_.put_bytes(std::as_bytes(std::span(value)));
    return *this;
  }
  template <typename T>
  Raw& put(T value) {
    out_.put(value);
    return *this;
  }
  Raw& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  std::vector<std::byte> bytes(size_t data_bytes = 0) {
    auto bytes = out_.take();
    bytes.resize((bytes.size() + 31) / 32 * 32 + data_bytes);
    return bytes;
  }

 private:
  ByteWriter out_;
};

TEST(GgufBroken, CutShortAtEveryByte) {
  const auto whole = small_gguf();
  // The padding after the last tensor is not part of any tensor: 34 bytes padded to 64.
  const size_t needed = whole.size() - 30;
  ASSERT_TRUE(parse_gguf(std::span(whole).first(needed), "f.gguf").has_value());
  for (size_t length = 0; length < needed; ++length) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    const auto header = parse_gguf(part, "f.gguf");
    ASSERT_FALSE(header.has_value()) << length;
    ASSERT_EQ(header.error().code(), Code::kDataLoss) << length << " " << header.error().to_string();
  }
}

TEST(GgufBroken, EveryByteDamagedIsAnErrorOrAHeaderWithinTheFile) {
  const auto whole = small_gguf();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint8_t value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      auto bytes = whole;
      bytes[at] = std::byte{value};
      const auto header = parse_gguf(bytes, "f.gguf");
      if (!header.has_value()) continue;
      for (const auto& tensor : header->tensors) {
        ASSERT_GE(tensor.file_offset, header->data_offset);
        ASSERT_LE(tensor.file_offset + tensor.bytes, static_cast<int64_t>(bytes.size()));
      }
    }
  }
}

TEST(GgufBroken, WrongMagicAndVersions) {
  auto bytes = small_gguf();
  poke(bytes, 0, uint32_t{0x67676d6c});
  EXPECT_THAT(error_of(bytes), AllOf(HasSubstr("invalid_argument"), HasSubstr("f.gguf: not a GGUF file")));
  for (const auto& [version, text] : std::vector<std::pair<uint32_t, std::string>>{
           {0, "version 0"}, {1, "version 1"}, {4, "version 4"}, {0x03000000, "big-endian"}}) {
    bytes = small_gguf();
    poke(bytes, 4, version);
    EXPECT_THAT(error_of(bytes), AllOf(HasSubstr("unimplemented"), HasSubstr(text)));
  }
  bytes = small_gguf();
  poke(bytes, 4, uint32_t{2});
  EXPECT_EQ(error_of(bytes), "parsed");
}

TEST(GgufBroken, AbsurdCountsAreRefusedBeforeAnythingIsReserved) {
  for (const uint64_t count : {uint64_t{1000}, uint64_t{1} << 40, UINT64_MAX}) {
    EXPECT_THAT(error_of(Raw(count, 0).bytes()), HasSubstr("tensors of at least"));
    EXPECT_THAT(error_of(Raw(0, count).bytes()), HasSubstr("metadata pairs of at least"));
    EXPECT_THAT(error_of(Raw(0, 1).text("key").put(uint32_t{9}).put(uint32_t{0}).put(count).bytes()),
                AllOf(HasSubstr("elements of metadata key key"), HasSubstr("bytes remain")));
    EXPECT_THAT(error_of(Raw(0, 1).text("key").put(uint32_t{8}).put(count).bytes(8)),
                AllOf(HasSubstr("metadata key key at byte 39"), HasSubstr("remain in the file")));
  }
}

TEST(GgufBroken, DeeplyNestedArraysDoNotOverflowTheStack) {
  Raw raw(0, 1);
  raw.text("deep").put(uint32_t{9});
  for (int i = 0; i < 100000; ++i) raw.put(uint32_t{9}).put(uint64_t{1});
  EXPECT_THAT(error_of(raw.bytes()), AllOf(HasSubstr("out_of_range"), HasSubstr("deep nests arrays deeper")));
}

TEST(GgufBroken, NestedArraysAreRead) {
  Raw raw(0, 1);
  raw.text("nested").put(uint32_t{9}).put(uint32_t{9}).put(uint64_t{2});
  raw.put(uint32_t{0}).put(uint64_t{2}).put(uint8_t{1}).put(uint8_t{2});
  raw.put(uint32_t{8}).put(uint64_t{1}).text("three");
  const auto header = parse_gguf(raw.bytes(), "f.gguf");
  ASSERT_TRUE(header.has_value()) << header.error().to_string();
  EXPECT_EQ(header->metadata["nested"], nlohmann::json::parse(R"([[1,2],["three"]])"));
}

TEST(GgufBroken, RepeatedNames) {
  EXPECT_THAT(
      error_of(Raw(0, 2).text("k").put(uint32_t{0}).put(uint8_t{1}).text("k").put(uint32_t{0}).put(uint8_t{2}).bytes()),
      HasSubstr("metadata key k appears again at byte 38"));
  EXPECT_THAT(error_of(Raw(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).bytes(64)),
              HasSubstr("tensor t appears again at byte 57"));
}

TEST(GgufBroken, WrongValueTypes) {
  EXPECT_THAT(error_of(Raw(0, 1).text("k").put(uint32_t{13}).put(uint64_t{0}).bytes()), HasSubstr("value type 13"));
  EXPECT_THAT(error_of(Raw(0, 1).text("k").put(uint32_t{7}).put(uint8_t{2}).bytes()), HasSubstr("boolean 2"));
}

TEST(GgufBroken, WrongShapes) {
  const auto error = [](std::vector<uint64_t> dims, uint32_t type = 0) {
    return error_of(Raw(1, 0).tensor("t", std::move(dims), type, 0).bytes(64));
  };
  EXPECT_EQ(error({4, 4}), "parsed");
  EXPECT_THAT(error({4, 0}), AllOf(HasSubstr("tensor t has dimension 0 at byte 45")));
  EXPECT_THAT(error({uint64_t{1} << 63}), HasSubstr("tensor t has dimension 9223372036854775808"));
  EXPECT_THAT(error({uint64_t{1} << 32, uint64_t{1} << 32}), AllOf(HasSubstr("tensor t"), HasSubstr("overflows")));
  EXPECT_THAT(error({uint64_t{1} << 62}), HasSubstr("overflows"));
  EXPECT_THAT(error({uint64_t{1} << 40}), HasSubstr("cut short"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}), HasSubstr("tensor t has 5 dimensions"));
  EXPECT_THAT(error({}), HasSubstr("tensor t has 0 dimensions"));
  EXPECT_THAT(error({33}, 8), HasSubstr("rows of 33, not a multiple of q8_0's block of 32"));
}

TEST(GgufBroken, UnknownAndUnreadTensorTypes) {
  EXPECT_THAT(error_of(Raw(1, 0).tensor("t", {256}, 10, 0).bytes(256)),
              AllOf(HasSubstr("unimplemented"), HasSubstr("tensor t is Q2_K")));
  EXPECT_THAT(error_of(Raw(1, 0).tensor("t", {32}, 4, 0).bytes(256)), HasSubstr("tensor t has unknown type 4"));
  EXPECT_THAT(error_of(Raw(1, 0).tensor("t", {32}, 0xffffffff, 0).bytes(256)), HasSubstr("data_loss"));
}

TEST(GgufBroken, TensorsOutsideTheFileMisalignedOrOverlapping) {
  EXPECT_THAT(error_of(Raw(1, 0).tensor("t", {8}, 0, 64).bytes(64)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(Raw(1, 0).tensor("t", {8}, 0, UINT64_MAX - 31).bytes(64)), HasSubstr("begins at data byte"));
  EXPECT_THAT(error_of(Raw(1, 0).tensor("t", {4}, 0, 16).bytes(64)), HasSubstr("not a multiple of 32"));
  EXPECT_THAT(error_of(Raw(2, 0).tensor("t", {16}, 0, 0).tensor("u", {8}, 0, 32).bytes(64)),
              AllOf(HasSubstr("tensors t (bytes"), HasSubstr("and u (bytes"), HasSubstr("overlap")));
  EXPECT_EQ(error_of(Raw(2, 0).tensor("t", {8}, 0, 32).tensor("u", {8}, 0, 0).bytes(64)), "parsed");
}

TEST(GgufBroken, AlignmentIsHonouredAndChecked) {
  const auto with_alignment = [](uint32_t alignment) {
    Raw raw(1, 1);
    raw.text("general.alignment").put(uint32_t{4}).put(alignment).tensor("t", {1}, 0, 0);
    auto bytes = raw.bytes(4096);
    return parse_gguf(bytes, "f.gguf");
  };
  EXPECT_EQ(with_alignment(1024)->tensors[0].file_offset, 1024);
  EXPECT_EQ(with_alignment(1)->tensors[0].file_offset, 24 + 8 + 17 + 4 + 4 + 8 + 1 + 4 + 8 + 4 + 8);
  for (const uint32_t bad : {0u, 3u, 48u, 0x80000000u}) {
    ASSERT_FALSE(with_alignment(bad).has_value()) << bad;
    EXPECT_THAT(with_alignment(bad).error().to_string(), HasSubstr("general.alignment is"));
  }
  EXPECT_THAT(error_of(Raw(0, 1).text("general.alignment").put(uint32_t{8}).text("\xff").bytes()),
              HasSubstr("general.alignment is"));
}

}  // namespace
}  // namespace baton::weights
