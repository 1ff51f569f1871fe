// Frames of wire/handoff_messages.h over a byte stream. One coroutine reads and one writes at a time.
//
// Sketch: a data frame is about 1 MB: one gathered write straight from the arena on P; on D one read into a staging
// buffer that stays in L2 and is then copied and hashed into the arena. Loopback TCP moves 3 to 5 GB/s, so the extra
// copy (over 10 GB/s) is hidden behind the kernel's own.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "net/stream.h"
#include "tensor/buffer.h"
#include "wire/handoff_messages.h"

namespace baton::transport {

class FrameChannel {
 public:
  // Frames with more payload are refused.
  FrameChannel(std::unique_ptr<net::Stream> stream, uint32_t payload_bytes_max)
      : stream_(std::move(stream)), payload_bytes_max_(payload_bytes_max) {}

  struct Frame {
    wire::Message message;
    std::span<const std::byte> payload;  // until the next read
  };
  struct ReadLimits {
    Duration start;                            // until the header is there
    Duration rest = std::chrono::seconds(10);  // for each piece after it, as long as bytes keep coming
    uint32_t body_bytes_max = wire::kBodyBytesMax;
  };
  net::Task<Result<Frame>> read(ReadLimits limits);
  net::Task<Result<void>> write(const wire::Message& message, std::span<const std::span<const std::byte>> payload,
                                Duration timeout);
  // From here on, instead of what the constructor was told.
  void allow_payload(uint32_t bytes_max) { payload_bytes_max_ = bytes_max; }
  void close() { stream_->close(); }
  net::Stream& stream() { return *stream_; }

 private:
  Result<std::span<std::byte>> payload_space(uint32_t bytes);

  std::unique_ptr<net::Stream> stream_;
  uint32_t payload_bytes_max_;
  std::vector<std::byte> body_;
  tensor::Buffer payload_;
};

}  // namespace baton::transport
