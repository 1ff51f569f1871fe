#include "transport/tcp/frame_channel.h"

#include "transport/tcp/tcp_test_support.h"

namespace baton::transport {
namespace {

using std::chrono::milliseconds;
constexpr Duration kShort = milliseconds(300);

struct ChannelTest : ::testing::Test {
  testing::Loop loop;
  std::pair<std::unique_ptr<net::Stream>, std::unique_ptr<net::Stream>> ends =
      net::make_memory_streams(loop.io.get_executor());

  // What the second end reads after `bytes` were written to the first.
  Result<wire::Message> read_of(std::vector<std::byte> bytes, bool then_close = true) {
    std::optional<Result<void>> written;
    std::optional<Result<wire::Message>> read;
    const auto write = [&]() -> net::Task<Result<void>> {
      const std::span<const std::byte> piece = bytes;
      auto result = co_await ends.first->write({&piece, 1}, kShort);
      if (then_close) ends.first->close();
      co_return result;
    };
    FrameChannel channel(std::move(ends.second), 1 << 20);
    const auto take = [&]() -> net::Task<Result<wire::Message>> {
      BATON_CO_TRY_ASSIGN(auto frame, co_await channel.read({.start = kShort, .rest = kShort}));
      co_return std::move(frame.message);
    };
    loop.spawn<Result<void>>(write(), written);
    loop.spawn<Result<wire::Message>>(take(), read);
    loop.run();
    return read.value();
  }
};

TEST_F(ChannelTest, ScatteredPayloadArrivesAsOnePiece) {
  FrameChannel out(std::move(ends.first), 0), in(std::move(ends.second), 1 << 20);
  std::vector<std::byte> payload(300000);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 31);
  std::vector<std::span<const std::byte>> pieces;
  for (size_t at = 0; at < payload.size(); at += 1000) pieces.push_back(std::span(payload).subspan(at, 1000));
  std::optional<Result<void>> written;
  std::optional<Result<bool>> same;
  const wire::Message message = wire::BlockData{.call = 5, .checksums = {1, 2}};
  loop.spawn<Result<void>>(out.write(message, pieces, kShort), written);
  const auto take = [&]() -> net::Task<Result<bool>> {
    BATON_CO_TRY_ASSIGN(const auto frame, co_await in.read({.start = kShort}));
    co_return std::get<wire::BlockData>(frame.message).call == 5 && std::ranges::equal(frame.payload, payload);
  };
  loop.spawn<Result<bool>>(take(), same);
  loop.run();
  ASSERT_TRUE(written.value());
  ASSERT_TRUE(same.value());
  EXPECT_TRUE(*same.value());
}

TEST_F(ChannelTest, AFrameCutShortIsNotAMessage) {
  auto bytes = wire::encode_frame(wire::OfferQuery{1, 2});
  bytes.pop_back();
  EXPECT_EQ(read_of(bytes).error().code(), Code::kUnavailable);
}

TEST_F(ChannelTest, AFrameThatNeverEndsTimesOut) {
  auto bytes = wire::encode_frame(wire::OfferQuery{1, 2});
  bytes.pop_back();
  EXPECT_EQ(read_of(bytes, /*then_close=*/false).error().code(), Code::kDeadlineExceeded);
}

TEST_F(ChannelTest, AnotherProtocolIsRefusedAtItsFirstBytes) {
  const std::string text = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(read_of({bytes.begin(), bytes.end()}).error().code(), Code::kDataLoss);
}

TEST_F(ChannelTest, MorePayloadThanExpectedIsRefusedBeforeItIsRead) {
  EXPECT_EQ(read_of(wire::encode_frame(wire::BlockData{}, (1 << 20) + 1)).error().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace baton::transport
