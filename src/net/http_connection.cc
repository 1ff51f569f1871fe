#include "net/http_connection.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <vector>

#include "base/log.h"
#include "net/ascii.h"

namespace baton::net {
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadAhead = 64 * 1024;  // beyond the largest head
constexpr size_t kSmallRead = 8 * 1024, kLargeRead = 64 * 1024;
constexpr Duration kHangUpPoll = std::chrono::milliseconds(50);
constexpr Duration kLinger = std::chrono::milliseconds(500);

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// RFC 9110 date, made once per second and thread.
std::string_view http_date() {
  thread_local std::time_t made_at = 0;
  thread_local char text[64];
  const std::time_t now = std::time(nullptr);
  if (now != made_at) {
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    made_at = now;
  }
  return text;
}

// Fields that the writer owns, since they decide the framing.
bool is_framing_field(std::string_view name) {
  return equal_ignoring_case(name, "content-length") || equal_ignoring_case(name, "transfer-encoding") ||
         equal_ignoring_case(name, "connection") || equal_ignoring_case(name, "date");
}

std::string response_head(int status, const HttpHeaders& headers) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, http_reason(status), http_date());
  for (const auto& [name, value] : headers.all()) {
    // A field that could end the line early (response splitting) is dropped whole.
    if (is_framing_field(name) || !is_token(name) || !is_field_value(value)) continue;
    head.append(name).append(": ").append(value).append("\r\n");
  }
  return head;
}

std::string error_body(const HttpError& error) {
  std::string escaped;
  for (char c : error.message) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":{}}}}})", escaped,
                     http_reason(error.status), error.status);
}

}  // namespace

// The answering side of one request; lives in run_handler().
class ConnectionResponder final : public HttpResponder {
 public:
  ConnectionResponder(HttpConnection& connection, const RequestHead& head)
      : connection_(connection),
        is_head_(head.request.method == "HEAD"),
        minor_version_(head.minor_version),
        keep_alive_(head.keep_alive) {}

  Task<Result<void>> respond(HttpResponse response) override {
    if (answered()) co_return fail(Code::kFailedPrecondition, "this request has been answered already");
    status_ = response.status;
    std::string head = response_head(response.status, response.headers);
    const bool bodiless = response.status < 200 || response.status == 204 || response.status == 304;
    if (!bodiless) fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", response.body.size());
    append_connection(head);
    const std::string_view body = bodiless || is_head_ ? std::string_view() : std::string_view(response.body);
    auto written = co_await write({bytes_of(head), bytes_of(body)});
    complete_ = written.has_value();
    co_return written;
  }

  Task<Result<void>> begin_stream(int status, HttpHeaders headers) override {
    if (answered()) co_return fail(Code::kFailedPrecondition, "this request has been answered already");
    status_ = status;
    streaming_ = true;
    // An HTTP/1.0 client knows no chunks: its body ends when the connection does.
    chunked_ = minor_version_ == 1;
    if (!chunked_) keep_alive_ = false;
    std::string head = response_head(status, headers);
    if (chunked_) head += "Transfer-Encoding: chunked\r\n";
    append_connection(head);
    co_return co_await write({bytes_of(head)});
  }

  Task<Result<void>> write_chunk(std::string_view data) override {
    if (!streaming_ || complete_) co_return fail(Code::kFailedPrecondition, "no stream is open to write to");
    if (data.empty() || is_head_) {
      if (connection_.client_gone_) co_return gone();
      co_return Result<void>();
    }
    if (!chunked_) co_return co_await write({bytes_of(data)});
    char size[24];
    const auto end = fmt::format_to_n(size, sizeof(size), "{:x}\r\n", data.size());
    co_return co_await write({bytes_of({size, end.size}), bytes_of(data), bytes_of("\r\n")});
  }

  Task<Result<void>> end_stream() override {
    if (!streaming_ || complete_) co_return fail(Code::kFailedPrecondition, "no stream is open to end");
    Result<void> written;
    if (chunked_ && !is_head_) written = co_await write({bytes_of("0\r\n\r\n")});
    complete_ = written.has_value();
    co_return written;
  }

  bool answered() const override { return status_ != 0; }
  int status() const override { return status_; }
  bool client_gone() const override { return connection_.client_gone_; }
  // Called at once when the client has gone already.
  void on_client_gone(std::function<void()> callback) override {
    if (connection_.client_gone_ && callback && !complete_) {
      if (!std::exchange(connection_.told_gone_, true)) callback();
      return;
    }
    connection_.on_client_gone_ = std::move(callback);
  }
  asio::any_io_executor executor() override { return connection_.stream_->executor(); }

  bool complete() const { return complete_; }
  bool keep_alive() const { return keep_alive_; }

 private:
  static std::unexpected<Status> gone() { return fail(Code::kUnavailable, "the client has gone"); }

  void append_connection(std::string& head) {
    if (connection_.shared_->draining.load(std::memory_order_relaxed)) keep_alive_ = false;
    if (!keep_alive_) head += "Connection: close\r\n";
    if (keep_alive_ && minor_version_ == 0) head += "Connection: keep-alive\r\n";
    head += "\r\n";
  }

  Task<Result<void>> write(std::vector<std::span<const std::byte>> pieces) {
    if (connection_.closed_) co_return gone();
    auto written = co_await connection_.stream_->write(pieces, connection_.shared_->options.write_timeout);
    if (!written) {
      const bool slow = written.error().code() == Code::kDeadlineExceeded;
      connection_.shut();
      if (slow) co_return fail(Code::kUnavailable, "the client does not read: {}", written.error().message());
      co_return gone();
    }
    co_return written;
  }

  HttpConnection& connection_;
  const bool is_head_;
  const int minor_version_;
  bool keep_alive_;
  int status_ = 0;
  bool streaming_ = false, chunked_ = false, complete_ = false;
};

HttpConnection::HttpConnection(std::unique_ptr<Stream> stream, std::shared_ptr<Shared> shared)
    : stream_(std::move(stream)),
      shared_(std::move(shared)),
      input_changed_(stream_->executor()),
      room_changed_(stream_->executor()) {
  shared_->open.fetch_add(1);
}

HttpConnection::~HttpConnection() { shared_->open.fetch_sub(1); }

void HttpConnection::start(std::function<void()> on_end) {
  const auto executor = stream_->executor();
  asio::co_spawn(executor, [self = shared_from_this()] { return self->pump(); }, asio::detached);
  asio::co_spawn(
      executor,
      [](std::shared_ptr<HttpConnection> self, std::function<void()> ended) -> Task<void> {
        co_await self->serve();
        self->shut();
        ended();
      }(shared_from_this(), std::move(on_end)),
      asio::detached);
}

void HttpConnection::close() {
  asio::post(stream_->executor(), [self = shared_from_this()] { self->shut(); });
}

void HttpConnection::close_if_idle() {
  asio::post(stream_->executor(), [self = shared_from_this()] {
    if (self->idle_) self->shut();
  });
}

void HttpConnection::shut() {
  if (std::exchange(closed_, true)) return;
  client_left();
  stream_->close();
  input_changed_.cancel();
  room_changed_.cancel();
}

void HttpConnection::client_left() {
  input_ended_ = true;
  if (!handling_ || std::exchange(client_gone_, true)) return;
  auto callback = std::exchange(on_client_gone_, nullptr);
  if (callback && !std::exchange(told_gone_, true)) callback();
}

// Reads ahead for as long as the connection lives.
Task<void> HttpConnection::pump() {
  const auto self = shared_from_this();
  std::vector<std::byte> buffer(kSmallRead);
  while (!input_ended_) {
    if (input_.size() >= shared_->options.max_header_bytes + kReadAhead) {
      co_await wait_for_room();
      continue;
    }
    const auto count = co_await stream_->read_some(buffer, kNoTimeout);
    if (closed_) co_return;
    if (count && *count > 0) {
      input_.append(reinterpret_cast<const char*>(buffer.data()), *count);
      if (*count == buffer.size() && buffer.size() < kLargeRead) buffer.resize(kLargeRead);
    } else {
      client_left();
    }
    input_changed_.cancel();
  }
}

// Read-ahead is full, so an end of input can't be read; it is still looked for.
Task<void> HttpConnection::wait_for_room() {
  room_changed_.expires_after(kHangUpPoll);
  co_await room_changed_.async_wait(kAwait);
  if (!closed_ && handling_ && stream_->peer_hung_up()) client_left();
}

Task<HttpConnection::Wait> HttpConnection::wait_for_bytes(TimePoint deadline) {
  const size_t before = input_.size();
  room_changed_.cancel();
  while (input_.size() == before) {
    if (input_ended_ || closed_) co_return Wait::kEnd;
    if (SteadyClock().now() >= deadline) co_return Wait::kTimeout;
    input_changed_.expires_at(deadline);
    co_await input_changed_.async_wait(kAwait);
  }
  co_return Wait::kBytes;
}

Task<void> HttpConnection::serve() {
  while (co_await serve_one()) {
  }
  if (closed_ || input_ended_) co_return;
  co_await linger();
}

// Says goodbye and reads on for a moment: closing with unread input would reset the connection, and the client could
// lose the answer.
Task<void> HttpConnection::linger() {
  if (!co_await stream_->shutdown_write(kLinger)) co_return;
  const TimePoint deadline = deadline_after(kLinger);
  for (size_t dropped = 0; dropped < 4 * 1024 * 1024;) {
    dropped += input_.size();
    input_.clear();
    if (co_await wait_for_bytes(deadline) != Wait::kBytes) co_return;
  }
}

Task<bool> HttpConnection::serve_one() {
  auto head = co_await read_head();
  if (!head) {
    if (head.error().status != 0) co_await refuse(std::move(head.error()));
    co_return false;
  }
  BodyShare share(*shared_);
  auto body = co_await read_body(*head, share);
  if (!body) {
    if (body.error().status != 0) co_await refuse(std::move(body.error()));
    co_return false;
  }
  head->request.body = std::move(*body);
  co_return co_await run_handler(std::move(*head));
}

Task<Parsed<RequestHead>> HttpConnection::read_head() {
  const auto& options = shared_->options;
  const auto silent = std::unexpected(HttpError{.status = 0, .message = ""});
  idle_ = input_.empty();
  if (idle_ && shared_->draining.load()) co_return silent;
  TimePoint deadline = deadline_after(idle_ ? options.keep_alive_timeout : options.header_timeout);
  HeadScanner scanner({.max_bytes = options.max_header_bytes, .max_count = options.max_header_count});
  bool empty_line_allowed = true;
  for (;;) {
    // One empty line before a request is skipped, as RFC 9112 2.2 asks for.
    if (empty_line_allowed && input_.starts_with("\r\n")) {
      input_.erase(0, 2);
      empty_line_allowed = false;
    }
    const bool undecided = input_.empty() || (empty_line_allowed && input_ == "\r");
    if (!undecided) {
      const auto size = scanner.scan(input_);
      if (!size) co_return std::unexpected(size.error());
      if (*size > 0) {
        auto head = parse_request_head(std::string_view(input_).substr(0, *size));
        input_.erase(0, *size);
        co_return head;
      }
    }
    switch (co_await wait_for_bytes(deadline)) {
      case Wait::kEnd:
        co_return silent;
      case Wait::kTimeout:
        if (idle_) co_return silent;
        co_return std::unexpected(HttpError{408, "the request's head did not arrive in time"});
      case Wait::kBytes:
        if (std::exchange(idle_, false)) deadline = deadline_after(options.header_timeout);
    }
  }
}

bool HttpConnection::BodyShare::grow_to(size_t bytes) {
  if (bytes <= bytes_) return true;
  const size_t more = bytes - bytes_;
  if (shared_.body_bytes.fetch_add(more) + more > shared_.options.max_buffered_body_bytes) {
    shared_.body_bytes.fetch_sub(more);
    return false;
  }
  bytes_ = bytes;
  return true;
}

Task<Parsed<std::string>> HttpConnection::read_body(const RequestHead& head, BodyShare& share) {
  const auto& options = shared_->options;
  const auto too_large = std::unexpected(
      HttpError{413, fmt::format("the body is larger than the limit of {} bytes", options.max_body_bytes)});
  if (head.framing.length > options.max_body_bytes) co_return too_large;
  std::string body;
  // What is announced is not yet there: reserve in proportion to trust.
  body.reserve(static_cast<size_t>(std::min<uint64_t>(head.framing.length, 1u << 20)));
  BodyDecoder decoder(head.framing, options.max_body_bytes);
  bool tell_to_continue = head.expect_continue && input_.empty();
  for (;;) {
    const auto used = decoder.feed(input_, body);
    if (!used) co_return std::unexpected(used.error());
    input_.erase(0, *used);
    if (!share.grow_to(body.size())) {
      co_return std::unexpected(HttpError{503, "too many bytes of requests are being read; try again later"});
    }
    if (decoder.done()) co_return body;
    if (std::exchange(tell_to_continue, false)) {
      const std::span<const std::byte> line = bytes_of("HTTP/1.1 100 Continue\r\n\r\n");
      if (!co_await stream_->write({&line, 1}, options.write_timeout)) co_return std::unexpected(HttpError{0, ""});
    }
    const auto outcome = co_await wait_for_bytes(deadline_after(options.body_timeout));
    if (outcome == Wait::kEnd) co_return std::unexpected(HttpError{0, ""});
    if (outcome == Wait::kTimeout) co_return std::unexpected(HttpError{408, "the request's body stopped arriving"});
  }
}

Task<bool> HttpConnection::run_handler(RequestHead head) {
  head.request.peer = stream_->peer();
  ConnectionResponder responder(*this, head);
  handling_ = true;
  client_gone_ = told_gone_ = false;
  if (input_ended_) client_left();
  std::string failure;
  try {
    co_await shared_->handler(head.request, responder);
    if (!responder.answered()) failure = "the handler returned without an answer";
  } catch (const std::exception& error) {
    failure = error.what();
  } catch (...) {
    failure = "an exception of unknown type";
  }
  on_client_gone_ = nullptr;
  if (!failure.empty() && !client_gone_)
    log_error("event=http_handler_failed method={} path={} error=\"{}\"", head.request.method, head.request.path,
              failure);
  if (!responder.answered() && !closed_) {
    HttpResponse response{.status = 500, .headers = {}, .body = error_body({500, "internal error"})};
    response.headers.add("Content-Type", "application/json");
    (void)co_await responder.respond(std::move(response));
  }
  handling_ = false;
  // A stream that was begun and not ended is cut, so that the client can't take it for whole.
  if (!responder.complete()) shut();
  co_return !closed_ && !input_ended_ && responder.keep_alive();
}

Task<void> HttpConnection::refuse(HttpError error) {
  const std::string body = error_body(error);
  HttpHeaders headers;
  headers.add("Content-Type", "application/json");
  if (error.status == 503) headers.add("Retry-After", "1");
  std::string head = response_head(error.status, headers);
  fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\nConnection: close\r\n\r\n", body.size());
  const std::span<const std::byte> pieces[] = {bytes_of(head), bytes_of(body)};
  (void)co_await stream_->write(pieces, shared_->options.write_timeout);
}

}  // namespace baton::net
