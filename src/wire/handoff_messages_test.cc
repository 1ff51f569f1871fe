#include "wire/handoff_messages.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::wire {
namespace {

EngineIdentity identity() {
  EngineIdentity id;
  id.engine_id = "p";
  id.layer_names = {"a", "b"};
  id.layout = {.block_size = 16,
               .context_size = 2,
               .grid = {.pp = 1, .pcp = 1, .tp = 2, .dcp = 2, .processes = 1},
               .entries = {{0, {.kind = "keys_values", .dtype = "bf16", .units = 2, .parts = 2, .token_bytes = 128}},
                           {1, {.kind = "latent", .dtype = "fp8", .token_bytes = 656}}},
               .states = {{0, {.kind = "state", .dtype = "f32", .units = 2, .token_bytes = 65536}}},
               .ranks = {{"pp0 pcp0 tp0", 0, {{0, 0, 2}, {1, 0, 1}}, {{0, 0, 1}}},
                         {"pp0 pcp0 tp1", 1, {{0, 0, 2}, {1, 0, 1}}, {{0, 1, 1}}}}};
  return id;
}

std::vector<Message> one_of_each() {
  HelloReply hello{identity(), 10, 3, 30000, ShmLocation{"boot", 4, 5, {6, 7}, 8, 9}};
  return {Hello{identity()},
          hello,
          HelloReply{identity(), 1, 0, 2, std::nullopt, {{"10.0.0.2", 36001}, {"h", 7}}},
          OfferQuery{1, 2},
          OfferReply{1, 2, 33, {4, 5, 6}, {7, 8, 9}},
          OfferReply{1, 2, 33, {4, 5, 6}, {7, 8, 9}, {10, 11}, 12, 14},
          Renew{1, {2, 3}},
          RenewReply{1, {3}},
          EndOffer{1, 2, true},
          EndReply{1, 2, true},
          ReadBlocks{1, 2, {{3, false, {{0, 2, 0, 1}, {2, 1, 0, 2}}}, {4, true, {{0, 1, 1, 1}}}}, {{0, 5}, {1, 0}}},
          BlockData{1, 2, 3, 4, 5, {6, 7, 0, 1}, true, {8, 9}},
          ErrorReply{1, 2, Code::kNotFound, "no such offer"},
          PushOpen{1, 4, 33, {2, 3}, true},
          PushOpenReply{1, 16, true},
          PushData{1, 2, false, {3, 1, 0, 2}, 4, 1, {8, 9}},
          PushEnd{1, true, 42},
          PushEndReply{1, true}};
}

uint16_t type_of(const Message& message) { return static_cast<uint16_t>(message.index() + 1); }
std::span<const std::byte> body_of(const std::vector<std::byte>& frame) {
  return std::span(frame).subspan(kFrameHeaderBytes);
}

TEST(HandoffMessages, EachSurvivesTheWire) {
  for (const Message& message : one_of_each()) {
    const auto frame = encode_frame(message, message.index() == 9 ? 100 : 0);
    const auto header = decode_frame_header(std::span(frame).first<kFrameHeaderBytes>());
    ASSERT_TRUE(header.has_value()) << header.error().to_string();
    EXPECT_EQ(header->type, type_of(message));
    EXPECT_EQ(header->body_bytes + kFrameHeaderBytes, frame.size());
    const auto back = decode_checked(*header, body_of(frame));
    ASSERT_TRUE(back.has_value()) << back.error().to_string();
    EXPECT_EQ(encode_frame(*back, header->payload_bytes), frame) << message_name(header->type);
  }
}

TEST(HandoffMessages, CutShortOrTooLongIsAnError) {
  for (const Message& message : one_of_each()) {
    const auto frame = encode_frame(message);
    const auto body = body_of(frame);
    for (size_t cut = 0; cut < body.size(); ++cut) {
      EXPECT_FALSE(decode_body(type_of(message), body.first(cut)).has_value()) << message.index() << " at " << cut;
    }
    auto longer = frame;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode_body(type_of(message), body_of(longer)).has_value());
  }
}

TEST(HandoffMessages, RandomBytesNeverDecodeBeyondTheirBounds) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(random() % 200);
    for (auto& b : bytes) b = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    for (uint16_t type = 0; type < 14; ++type) (void)decode_body(type, bytes);
  }
}

TEST(HandoffMessages, HeadersOutsideTheBoundsAreRefused) {
  const auto frame = encode_frame(OfferQuery{1, 2});
  const auto header_with = [&](size_t at, auto value) {
    auto changed = frame;
    std::memcpy(changed.data() + at, &value, sizeof(value));
    return decode_frame_header(std::span(changed).first<kFrameHeaderBytes>());
  };
  EXPECT_EQ(header_with(0, uint32_t{0x20544547}).error().code(), Code::kDataLoss);  // "GET "
  EXPECT_EQ(header_with(4, uint16_t{1}).error().code(), Code::kMismatch);
  EXPECT_EQ(header_with(6, uint16_t{0}).error().code(), Code::kDataLoss);
  EXPECT_EQ(header_with(6, uint16_t{99}).error().code(), Code::kDataLoss);
  EXPECT_EQ(header_with(8, uint32_t{0xFFFFFFFF}).error().code(), Code::kOutOfRange);
  EXPECT_EQ(header_with(12, uint32_t{1}).error().code(), Code::kOutOfRange);  // a payload on a query
}

TEST(HandoffMessages, ListsThatDisagreeAreRefused) {
  const auto frame = encode_frame(OfferReply{1, 2, 3, {4, 5}, {6}});
  EXPECT_EQ(decode_body(4, body_of(frame)).error().code(), Code::kOutOfRange);
  const auto slot = encode_frame(OfferReply{1, 2, 3, {4}, {6}, {}, -2, 0});
  EXPECT_EQ(decode_body(4, body_of(slot)).error().code(), Code::kOutOfRange);
}

TEST(HandoffMessages, OneBitThatChangesOnTheWayIsNoticed) {
  auto frame = encode_frame(OfferReply{1, 2, 3, {4}, {6}});
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    auto altered = frame;
    altered[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto header = decode_frame_header(std::span(altered).first<kFrameHeaderBytes>());
    if (!header) continue;
    EXPECT_EQ(decode_checked(*header, body_of(altered)).error().code(), Code::kDataLoss) << "bit " << bit;
  }
}

TEST(HandoffMessages, ReadsOfWhatIsNotListedAreRefused) {
  const auto frame = encode_frame(ReadBlocks{1, 2, {{3, false, {{0, 1, 0, 1}}}}, {{1, 0}}});
  EXPECT_EQ(decode_body(9, body_of(frame)).error().code(), Code::kOutOfRange);
  const ReadBlocks many{1, 2, {{}}, std::vector<ReadPart>(kReadPartsMax + 1)};
  EXPECT_EQ(decode_body(9, body_of(encode_frame(many))).error().code(), Code::kOutOfRange);
}

TEST(HandoffMessages, MembersAtImpossibleAddressesAreRefused) {
  const auto frame = encode_frame(HelloReply{identity(), 1, 0, 2, std::nullopt, {{"h", 70000}}});
  EXPECT_EQ(decode_body(2, body_of(frame)).error().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace baton::wire
