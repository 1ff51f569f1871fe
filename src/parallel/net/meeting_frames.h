// What the desk of a meeting (rank 0) and the members say to each other, after the greeting.
#pragma once

#include <string>
#include <vector>

#include "base/byte_codec.h"
#include "net/stream.h"

namespace baton::parallel {

enum class FrameKind : uint8_t {
  kHello = 1,  // member: who I am
  kRefused,    // desk: why not, and whether to try again
  kTable,      // desk: all are here; where they are
  kReady,      // member: I am connected to all
  kFailed,     // member: I can't, and why
  kGo,         // desk: all are ready
  kAborted,    // desk: it came to nothing, and why
  kLane,       // member to member: who I am, and which lane this is
  kLaneTaken,  // the answer
};

struct Frame {
  FrameKind kind{};
  std::vector<std::byte> body;
};
inline constexpr uint32_t kFrameBytesMax = 1 << 20;
net::Task<Result<void>> write_frame(net::Stream& stream, FrameKind kind, std::span<const std::byte> body,
                                    Duration timeout);
net::Task<Result<Frame>> read_frame(net::Stream& stream, Duration timeout, uint32_t bytes_max = kFrameBytesMax);

struct Hello {
  std::string group, fingerprint;
  int32_t rank = 0, size = 0;
  std::string host;  // where the member listens for the others
  int32_t port = 0;

  std::vector<std::byte> encode() const;
  static Result<Hello> decode(std::span<const std::byte> bytes);
};

// Of kRefused, kFailed and kAborted.
struct Reason {
  Code code = Code::kUnavailable;
  bool try_again = false;
  std::string message;

  std::vector<std::byte> encode() const;
  static Result<Reason> decode(std::span<const std::byte> bytes);
};

struct MeetingTable {
  struct Place {
    std::string host;  // empty for rank 0: the address by which it is known
    int32_t port = 0;
  };
  std::string cookie;  // known to the members of this group only
  std::vector<Place> places;

  std::vector<std::byte> encode() const;
  static Result<MeetingTable> decode(std::span<const std::byte> bytes);
};

enum class LaneKind : uint8_t { kControl = 0, kExchange = 1, kMessages = 2 };
inline constexpr int kLaneKinds = 3;
struct LaneHello {
  int32_t rank = 0;
  LaneKind lane{};

  std::vector<std::byte> encode() const;
  static Result<LaneHello> decode(std::span<const std::byte> bytes);
};

}  // namespace baton::parallel
