// Strict HTTP/1.1 heads and bodies, as pure functions over bytes: no I/O, no clock, any thread.
//
// What two parsers could read in two ways is refused: bare LF, obs-fold, a space before a colon, Transfer-Encoding
// beside Content-Length, repeated Content-Length, chunk sizes that are not plain hex. See
// docs/decisions/0001-http-parser.md.
//
// Cost per request of 6 fields: one memchr pass for the line ends, one table look-up per name byte, one compare per
// value byte; about 0.4 us with the copies.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/http.h"

namespace baton::net {

// What to answer (400, 413, 431, 505, ...) and why; the connection closes after it.
struct HttpError {
  int status = 400;
  std::string message;
};
template <typename T>
using Parsed = std::expected<T, HttpError>;

struct HeadLimits {
  size_t max_bytes = 64 * 1024;
  size_t max_count = 256;  // fields
};

// Finds where a head ends while its bytes arrive; each byte is looked at once.
class HeadScanner {
 public:
  explicit HeadScanner(HeadLimits limits) : limits_(limits) {}
  // `bytes` begins with the head and only grows between calls. The head's size with its empty line, or 0: more needed.
  Parsed<size_t> scan(std::string_view bytes);

 private:
  HeadLimits limits_;
  size_t scanned_ = 0;
  size_t line_start_ = 0;
  size_t lines_ = 0;
};

struct BodyFraming {
  enum class Kind : uint8_t { kNone, kLength, kChunked, kUntilClose };
  Kind kind = Kind::kNone;
  uint64_t length = 0;
};

struct RequestHead {
  HttpRequest request;  // without body and peer
  int minor_version = 1;
  bool keep_alive = true;
  bool expect_continue = false;
  BodyFraming framing;
};
// `head` is what HeadScanner found.
Parsed<RequestHead> parse_request_head(std::string_view head);

struct ResponseHead {
  int status = 0;
  HttpHeaders headers;
  bool keep_alive = true;
  BodyFraming framing;
};
// `to_head_request`: the answer has no body, whatever its fields say.
Parsed<ResponseHead> parse_response_head(std::string_view head, bool to_head_request);

// Takes a body's bytes as they arrive.
class BodyDecoder {
 public:
  BodyDecoder(BodyFraming framing, uint64_t max_bytes);
  // Appends decoded bytes to `out`; returns how many of `in` were used: all of it, unless the body ended in it.
  Parsed<size_t> feed(std::string_view in, std::string& out);
  bool done() const { return state_ == State::kDone; }
  // The peer has closed: true when that ends the body in good order.
  bool finish();

 private:
  enum class State : uint8_t { kBytes, kUntilClose, kChunkSize, kChunkBytes, kChunkEnd, kTrailer, kDone };
  Parsed<size_t> take_line(std::string_view in);  // into line_; 0: more needed
  Parsed<void> chunk_size();
  Parsed<void> trailer();
  Parsed<void> count(uint64_t bytes);

  State state_;
  uint64_t left_ = 0;  // of the body or the chunk
  uint64_t total_ = 0;
  uint64_t max_bytes_;
  std::string line_;
  bool line_complete_ = false;
  size_t trailer_bytes_ = 0;
};

}  // namespace baton::net
