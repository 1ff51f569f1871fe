#include "transport/tcp/frame_channel.h"

#include <algorithm>
#include <array>

namespace baton::transport {

Result<std::span<std::byte>> FrameChannel::payload_space(uint32_t bytes) {
  if (bytes > payload_bytes_max_) {
    return fail(Code::kOutOfRange, "a hand-off frame of {} bytes, at most {} are allowed", bytes, payload_bytes_max_);
  }
  if (payload_.size() < bytes) {
    BATON_TRY_ASSIGN(payload_, tensor::Buffer::allocate(std::max<size_t>(bytes, 1 << 20)));
  }
  return std::span(payload_.data(), bytes);
}

net::Task<Result<FrameChannel::Frame>> FrameChannel::read(ReadLimits limits) {
  std::array<std::byte, wire::kFrameHeaderBytes> bytes;
  BATON_CO_TRY(co_await net::read_exactly(*stream_, bytes, limits.start));
  BATON_CO_TRY_ASSIGN(const auto header, wire::decode_frame_header(bytes, limits.body_bytes_max));
  body_.resize(header.body_bytes);
  if (!body_.empty()) BATON_CO_TRY(co_await net::read_exactly(*stream_, body_, limits.rest));
  BATON_CO_TRY_ASSIGN(auto message, wire::decode_checked(header, body_));
  BATON_CO_TRY_ASSIGN(const auto payload, payload_space(header.payload_bytes));
  if (!payload.empty()) BATON_CO_TRY(co_await net::read_exactly(*stream_, payload, limits.rest));
  co_return Frame{std::move(message), payload};
}

net::Task<Result<void>> FrameChannel::write(const wire::Message& message,
                                            std::span<const std::span<const std::byte>> payload, Duration timeout) {
  size_t payload_bytes = 0;
  for (const auto& piece : payload) payload_bytes += piece.size();
  if (payload_bytes > wire::kPayloadBytesMax) {
    co_return fail(Code::kOutOfRange, "a hand-off frame of {} bytes, at most {} are allowed", payload_bytes,
                   wire::kPayloadBytesMax);
  }
  const auto head = wire::encode_frame(message, static_cast<uint32_t>(payload_bytes));
  std::vector<std::span<const std::byte>> pieces;
  pieces.reserve(payload.size() + 1);
  pieces.emplace_back(head);
  pieces.insert(pieces.end(), payload.begin(), payload.end());
  co_return co_await stream_->write(pieces, timeout);
}

}  // namespace baton::transport
