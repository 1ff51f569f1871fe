#include "net/http_client.h"

#include <fmt/format.h>

#include <boost/asio/this_coro.hpp>
#include <map>
#include <optional>
#include <vector>

#include "net/ascii.h"
#include "net/http_parse.h"
#include "net/socket_stream.h"

namespace baton::net {
namespace {

constexpr size_t kReadBytes = 32 * 1024;
constexpr int kMaxInterim = 8;  // 1xx answers before the real one
constexpr Duration kIdleMax = std::chrono::seconds(55);
constexpr Duration kRefusalWait = std::chrono::seconds(1);

// Idle connections by origin. Shared by the client and its streams, which may outlive it.
class Pool {
 public:
  explicit Pool(int max_idle) : max_idle_(max_idle) {}

  // Null when none is fit: the peer has closed, or sent what nobody asked for.
  std::unique_ptr<Stream> take(const std::string& origin) {
    auto& idle = idle_[origin];
    const TimePoint now = SteadyClock().now();
    while (!idle.empty()) {
      auto [stream, since] = std::move(idle.back());
      idle.pop_back();
      if (now - since < kIdleMax && stream->quiet()) return std::move(stream);
    }
    return nullptr;
  }
  void put(const std::string& origin, std::unique_ptr<Stream> stream) {
    auto& idle = idle_[origin];
    const TimePoint now = SteadyClock().now();
    std::erase_if(idle, [&](const Idle& each) { return now - each.since >= kIdleMax; });
    if (static_cast<int>(idle.size()) < max_idle_) idle.push_back({std::move(stream), now});
  }

 private:
  struct Idle {
    std::unique_ptr<Stream> stream;
    TimePoint since;
  };
  int max_idle_;
  std::map<std::string, std::vector<Idle>> idle_;
};

std::string origin_of(const HttpClientRequest& request) { return format_host_port(request.host, request.port); }

Result<std::string> request_head(const HttpClientRequest& request, bool tls) {
  const bool target_ok = request.target.starts_with('/') &&
                         std::ranges::all_of(request.target, [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_token(request.method) || !target_ok)
    return fail(Code::kInvalidArgument, "'{} {}' is not a request line", request.method, request.target);
  const bool usual_port = request.port == (tls ? 443 : 80);
  std::string host = format_host_port(request.host, request.port);
  if (usual_port) host.resize(host.rfind(':'));
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target, host);
  for (const auto& [name, value] : request.headers.all()) {
    if (equal_ignoring_case(name, "host") || equal_ignoring_case(name, "content-length") ||
        equal_ignoring_case(name, "connection") || equal_ignoring_case(name, "transfer-encoding"))
      continue;
    if (!is_token(name) || !is_field_value(value))
      return fail(Code::kInvalidArgument, "header '{}' holds characters that can't be sent", name);
    head.append(name).append(": ").append(value).append("\r\n");
  }
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH")
    fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", request.body.size());
  return head + "\r\n";
}

class ClientStream final : public HttpClientStream {
 public:
  ClientStream(std::shared_ptr<Pool> pool, std::string origin, std::unique_ptr<Stream> stream, Duration idle_timeout)
      : pool_(std::move(pool)), origin_(std::move(origin)), stream_(std::move(stream)), idle_timeout_(idle_timeout) {}

  // Sends the request and reads up to the end of the answer's head. `answered` is set at its first byte.
  Task<Result<void>> exchange(const HttpClientRequest& request, std::string_view head_text, size_t max_bytes,
                              bool& answered) {
    TimePoint deadline = deadline_after(request.head_timeout);
    const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(head_text)),
                                                 std::as_bytes(std::span(request.body))};
    auto written = co_await stream_->write(pieces, request.head_timeout);
    // A server may refuse and stop reading before it has the whole body: its answer may be there already.
    if (!written) {
      if (written.error().code() != Code::kUnavailable) co_return written;
      deadline = std::min(deadline, deadline_after(kRefusalWait));
    }
    auto read = co_await read_final_head(request.method == "HEAD", deadline, answered);
    if (!read) co_return written ? read : written;
    if (!written) head_.keep_alive = false;
    decoder_.emplace(head_.framing, max_bytes);
    co_return Result<void>();
  }

  int status() const override { return head_.status; }
  const HttpHeaders& headers() const override { return head_.headers; }

  Task<Result<std::string>> read_piece() override {
    std::string piece;
    for (;;) {
      if (closed_) co_return fail(Code::kCancelled, "the answer of {} was given up", origin_);
      const auto used = decoder_->feed(input_, piece);
      if (!used) {
        shut();
        co_return fail(Code::kDataLoss, "the answer of {}: {}", origin_, used.error().message);
      }
      input_.erase(0, *used);
      if (decoder_->done()) release();
      if (!piece.empty() || decoder_->done()) co_return piece;
      BATON_CO_TRY_ASSIGN(const size_t count, co_await read_more(deadline_after(idle_timeout_)));
      if (count == 0 && !decoder_->finish()) {
        shut();
        co_return fail(Code::kDataLoss, "{} closed before its answer was complete", origin_);
      }
    }
  }

  void close() override {
    closed_ = true;
    shut();
  }

 private:
  Task<Result<void>> read_final_head(bool to_head_request, TimePoint deadline, bool& answered) {
    for (int interim = 0; interim <= kMaxInterim; ++interim) {
      BATON_CO_TRY(co_await read_head(to_head_request, deadline, answered));
      if (head_.status >= 200) co_return Result<void>();
      if (head_.status == 101) break;
    }
    co_return fail(Code::kDataLoss, "{} sent interim answers that nobody asked for", origin_);
  }

  Task<Result<void>> read_head(bool to_head_request, TimePoint deadline, bool& answered) {
    HeadScanner scanner({});
    for (;;) {
      if (!input_.empty()) {
        answered = true;
        const auto size = scanner.scan(input_);
        if (!size) co_return fail(Code::kDataLoss, "the answer of {}: {}", origin_, size.error().message);
        if (*size > 0) {
          auto head = parse_response_head(std::string_view(input_).substr(0, *size), to_head_request);
          if (!head) co_return fail(Code::kDataLoss, "the answer of {}: {}", origin_, head.error().message);
          head_ = std::move(*head);
          input_.erase(0, *size);
          co_return Result<void>();
        }
      }
      BATON_CO_TRY_ASSIGN(const size_t count, co_await read_more(deadline));
      if (count == 0 && input_.empty()) co_return fail(Code::kUnavailable, "{} closed without an answer", origin_);
      if (count == 0) co_return fail(Code::kDataLoss, "{} closed amid its answer's head", origin_);
    }
  }

  Task<Result<size_t>> read_more(TimePoint deadline) {
    if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kReadBytes);
    const Duration left = deadline - SteadyClock().now();
    if (left <= Duration::zero()) co_return fail(Code::kDeadlineExceeded, "{} did not answer in time", origin_);
    auto count = co_await stream_->read_some({buffer_.get(), kReadBytes}, left);
    if (!count) {
      shut();
      co_return fail(count.error());
    }
    input_.append(reinterpret_cast<const char*>(buffer_.get()), *count);
    co_return *count;
  }

  // The body is complete: the connection serves the next request, unless more came than was asked for.
  void release() {
    if (!stream_) return;
    if (head_.keep_alive && input_.empty()) pool_->put(origin_, std::move(stream_));
    stream_.reset();
  }
  // The stream object stays, since a read may be pending on it.
  void shut() {
    if (stream_) stream_->close();
  }

  std::shared_ptr<Pool> pool_;
  std::string origin_;
  std::unique_ptr<Stream> stream_;
  Duration idle_timeout_;
  ResponseHead head_;
  std::optional<BodyDecoder> decoder_;
  std::string input_;
  std::unique_ptr<std::byte[]> buffer_;
  bool closed_ = false;
};

class PoolingClient final : public HttpClient {
 public:
  PoolingClient(asio::any_io_executor executor, HttpClientOptions options)
      : executor_(std::move(executor)),
        options_(std::move(options)),
        pool_(std::make_shared<Pool>(options_.max_idle_per_origin)) {}

  Task<Result<HttpResponse>> request(HttpClientRequest request) override {
    auto stream = co_await request_stream(std::move(request));
    if (!stream) co_return fail(stream.error());
    HttpResponse response{.status = (*stream)->status(), .headers = (*stream)->headers(), .body = {}};
    for (;;) {
      BATON_CO_TRY_ASSIGN(auto piece, co_await (*stream)->read_piece());
      if (piece.empty()) co_return response;
      response.body += piece;
    }
  }

  Task<Result<std::unique_ptr<HttpClientStream>>> request_stream(HttpClientRequest request) override {
    BATON_CO_TRY_ASSIGN(const auto head, request_head(request, options_.use_tls));
    const std::string origin = origin_of(request);
    auto pooled = pool_->take(origin);
    if (pooled) {
      auto first = co_await try_once(request, head, origin, std::move(pooled));
      if (first.stream) co_return std::move(first.stream);
      // The server closed the idle connection as we wrote to it: nobody has seen the request, so it is sent once more.
      const bool stale = !first.answered && first.error->code() == Code::kUnavailable;
      if (!stale) co_return fail(*first.error);
    }
    BATON_CO_TRY_ASSIGN(auto fresh, co_await connect_to(request));
    auto second = co_await try_once(request, head, origin, std::move(fresh));
    if (second.stream) co_return std::move(second.stream);
    co_return fail(*second.error);
  }

 private:
  struct Outcome {
    std::unique_ptr<HttpClientStream> stream;
    std::optional<Status> error;
    bool answered = false;
  };

  Task<Outcome> try_once(const HttpClientRequest& request, std::string_view head, const std::string& origin,
                         std::unique_ptr<Stream> connection) {
    Outcome outcome;
    auto stream = std::make_unique<ClientStream>(pool_, origin, std::move(connection), request.idle_timeout);
    if (request.cancellation) request.cancellation->set_hook([raw = stream.get()] { raw->close(); });
    if (request.cancellation && request.cancellation->cancelled()) stream->close();
    auto done = co_await stream->exchange(request, head, options_.max_response_bytes, outcome.answered);
    if (request.cancellation) request.cancellation->set_hook(nullptr);
    if (done) {
      outcome.stream = std::move(stream);
    } else {
      outcome.error = done.error();
    }
    co_return outcome;
  }

  Task<Result<std::unique_ptr<Stream>>> connect_to(const HttpClientRequest& request) {
    if (options_.use_tls && !tls_) {
      BATON_CO_TRY_ASSIGN(tls_, make_client_context(options_.tls));
    }
    co_return co_await connect_with({.host = request.host,
                                     .port = request.port,
                                     .timeout = request.connect_timeout,
                                     .tls = nullptr,
                                     .allow = options_.allow},
                                    tls_);
  }

  asio::any_io_executor executor_;
  HttpClientOptions options_;
  std::shared_ptr<Pool> pool_;
  TlsContext tls_;
};

}  // namespace

std::unique_ptr<HttpClient> make_http_client(asio::any_io_executor executor, HttpClientOptions options) {
  return std::make_unique<PoolingClient>(std::move(executor), std::move(options));
}

}  // namespace baton::net
