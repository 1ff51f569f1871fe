// The HTTP/1.1 client: keep-alive pool per origin, streamed answers, deadlines on every wait.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "net/http.h"
#include "net/stream.h"

namespace baton::net {

// Gives up a request whose answer has not begun: its connection closes at once, the call fails with kCancelled. One per
// request; used on the client's executor only.
class HttpCancellation {
 public:
  void cancel() {
    cancelled_ = true;
    if (auto hook = std::exchange(hook_, nullptr)) hook();
  }
  bool cancelled() const { return cancelled_; }
  void set_hook(std::function<void()> hook) { hook_ = std::move(hook); }  // the client's own

 private:
  bool cancelled_ = false;
  std::function<void()> hook_;
};

struct HttpClientRequest {
  std::string host;
  int port = 80;
  std::string method = "GET";
  std::string target = "/";
  HttpHeaders headers;  // Host, Content-Length and Connection are written by the client
  std::string body;
  Duration connect_timeout = std::chrono::seconds(5);
  Duration head_timeout = std::chrono::seconds(600);         // until status and headers
  Duration idle_timeout = std::chrono::seconds(600);         // between pieces of the body
  std::shared_ptr<HttpCancellation> cancellation = nullptr;  // shared: its holder may leave first
};

// An answer whose body is read piece by piece. Destroying it early closes the connection (the server sees it go).
class HttpClientStream {
 public:
  virtual ~HttpClientStream() = default;
  virtual int status() const = 0;
  virtual const HttpHeaders& headers() const = 0;
  // The next piece of the body, empty at its end. kDataLoss when the connection ends before the body does.
  virtual Task<Result<std::string>> read_piece() = 0;
  virtual void close() = 0;  // gives up; a pending read_piece fails with kCancelled
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // Whole answer; any status is a success. Retries once on a pooled connection that the server had closed.
  virtual Task<Result<HttpResponse>> request(HttpClientRequest request) = 0;
  virtual Task<Result<std::unique_ptr<HttpClientStream>>> request_stream(HttpClientRequest request) = 0;
};

struct HttpClientOptions {
  TlsOptions tls;
  bool use_tls = false;
  int max_idle_per_origin = 256;
  size_t max_response_bytes = 512u * 1024 * 1024;
  std::function<bool(std::string_view host, std::string_view address)> allow = nullptr;  // as ConnectOptions::allow
};
// Bound to one executor (an io_context run by one thread, or a strand). Never reads http_proxy from the environment.
std::unique_ptr<HttpClient> make_http_client(asio::any_io_executor executor, HttpClientOptions options = {});

}  // namespace baton::net
