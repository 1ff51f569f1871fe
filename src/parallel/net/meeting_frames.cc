#include "parallel/net/meeting_frames.h"

#include <array>

namespace baton::parallel {
namespace {

constexpr size_t kHeadBytes = 5;

}  // namespace

net::Task<Result<void>> write_frame(net::Stream& stream, FrameKind kind, std::span<const std::byte> body,
                                    Duration timeout) {
  ByteWriter frame;
  frame.put(static_cast<uint32_t>(body.size()));
  frame.put(kind);
  frame.put_bytes(body);
  const std::span<const std::byte> piece = frame.view();
  co_return co_await stream.write({&piece, 1}, timeout);
}

net::Task<Result<Frame>> read_frame(net::Stream& stream, Duration timeout, uint32_t bytes_max) {
  std::array<std::byte, kHeadBytes> head;
  BATON_CO_TRY(co_await net::read_exactly(stream, head, timeout));
  ByteReader reader(head);
  const auto bytes = reader.get<uint32_t>();
  Frame frame{.kind = reader.get<FrameKind>(), .body = {}};
  if (bytes > bytes_max) co_return fail(Code::kDataLoss, "{} sent a frame of {} bytes", stream.peer(), bytes);
  frame.body.resize(bytes);
  if (bytes > 0) BATON_CO_TRY(co_await net::read_exactly(stream, frame.body, std::chrono::seconds(10)));
  co_return frame;
}

std::vector<std::byte> Hello::encode() const {
  ByteWriter w;
  w.put_string(group);
  w.put_string(fingerprint);
  w.put(rank);
  w.put(size);
  w.put_string(host);
  w.put(port);
  return w.take();
}

Result<Hello> Hello::decode(std::span<const std::byte> bytes) {
  ByteReader r(bytes);
  Hello hello;
  hello.group = r.get_string();
  hello.fingerprint = r.get_string();
  hello.rank = r.get<int32_t>();
  hello.size = r.get<int32_t>();
  hello.host = r.get_string();
  hello.port = r.get<int32_t>();
  BATON_TRY(r.finish("a member's hello"));
  if (hello.port < 1 || hello.port > 65535) return fail(Code::kDataLoss, "a hello with port {}", hello.port);
  return hello;
}

std::vector<std::byte> Reason::encode() const {
  ByteWriter w;
  w.put(code);
  w.put(static_cast<uint8_t>(try_again));
  w.put_string(message);
  return w.take();
}

Result<Reason> Reason::decode(std::span<const std::byte> bytes) {
  ByteReader r(bytes);
  Reason reason;
  reason.code = r.get<Code>();
  reason.try_again = r.get<uint8_t>() != 0;
  reason.message = r.get_string();
  BATON_TRY(r.finish("a reason"));
  if (reason.code > Code::kInternal) reason.code = Code::kUnavailable;
  return reason;
}

std::vector<std::byte> MeetingTable::encode() const {
  ByteWriter w;
  w.put_string(cookie);
  w.put(static_cast<uint32_t>(places.size()));
  for (const auto& place : places) {
    w.put_string(place.host);
    w.put(place.port);
  }
  return w.take();
}

Result<MeetingTable> MeetingTable::decode(std::span<const std::byte> bytes) {
  ByteReader r(bytes);
  MeetingTable table;
  table.cookie = r.get_string();
  const auto count = r.get<uint32_t>();
  for (uint32_t i = 0; i < count && r.ok(); ++i) {
    std::string host = r.get_string();
    table.places.push_back({.host = std::move(host), .port = r.get<int32_t>()});
  }
  BATON_TRY(r.finish("the table of a meeting"));
  return table;
}

std::vector<std::byte> LaneHello::encode() const {
  ByteWriter w;
  w.put(rank);
  w.put(lane);
  return w.take();
}

Result<LaneHello> LaneHello::decode(std::span<const std::byte> bytes) {
  ByteReader r(bytes);
  LaneHello hello;
  hello.rank = r.get<int32_t>();
  hello.lane = r.get<LaneKind>();
  BATON_TRY(r.finish("a lane's hello"));
  if (hello.lane > LaneKind::kMessages) return fail(Code::kDataLoss, "there is no such lane");
  return hello;
}

}  // namespace baton::parallel
