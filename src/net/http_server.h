// The HTTP/1.1 server: strict parsing, keep-alive, chunked and streamed answers, limits, disconnect detection.
//
// Runs on the io_context given to it, which any number of threads may run: each connection has a strand of its own, and
// its handlers are coroutines on that strand. With `one_thread` the strands are left out.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/http.h"
#include "net/stream.h"

namespace baton::net {

// The answering side of one request. Exactly one of respond() or begin_stream()...end_stream() is used.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;
  // A whole answer with Content-Length.
  virtual Task<Result<void>> respond(HttpResponse response) = 0;
  // Sends status and headers, Transfer-Encoding: chunked; flushes.
  virtual Task<Result<void>> begin_stream(int status, HttpHeaders headers) = 0;
  // One chunk. kUnavailable once the client has gone. Empty data sends nothing.
  virtual Task<Result<void>> write_chunk(std::string_view data) = 0;
  virtual Task<Result<void>> end_stream() = 0;
  virtual bool answered() const = 0;  // a status line has been sent
  virtual int status() const = 0;     // the one sent; 0 before
  // True once the client has closed or reset its side: found while the handler runs, within 100 ms. An answer can still
  // be written to a client that has only ended its sending side.
  virtual bool client_gone() const = 0;
  // Called at most once, on the connection's executor, when the client goes before the answer is complete.
  // Set it again (or to nullptr) at will. When the client has gone already, the callback runs inside this call.
  virtual void on_client_gone(std::function<void()> callback) = 0;
  virtual asio::any_io_executor executor() = 0;
};

using HttpHandler = std::function<Task<void>(HttpRequest&, HttpResponder&)>;

struct HttpServerOptions {
  ListenOptions listen;
  TlsOptions tls;                                            // used when enabled()
  size_t max_header_bytes = 64 * 1024;                       // 431 beyond
  size_t max_header_count = 256;                             // 431
  size_t max_body_bytes = 512u * 1024 * 1024;                // 413
  size_t max_buffered_body_bytes = 2u * 1024 * 1024 * 1024;  // of all requests together: 503 with Retry-After
  int max_connections = 8192;                                // beyond: 503 with Retry-After, then closed
  Duration header_timeout = std::chrono::seconds(10);  // whole head, from its first byte (half-open, slowloris): 408
  Duration body_timeout = std::chrono::seconds(30);    // without progress: 408
  Duration keep_alive_timeout = std::chrono::seconds(65);  // idle between requests
  Duration write_timeout = std::chrono::seconds(30);       // a reader that does not read
  bool one_thread = false;  // the executor is run by one thread only (or is a strand): connections need none
};

// Its functions may be called from any thread.
class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  // Stops accepting; idle connections close; running requests go on.
  virtual void stop_accepting() = 0;
  // Closes everything. Handlers' writes fail. A handler that runs goes on until its next wait ends: run the context
  // until open_connections() is 0 before what handlers refer to is destroyed. The destructor closes too.
  virtual void close() = 0;
  virtual int open_connections() const = 0;
};
// Listens at once and serves while `context` runs. A handler that returns unanswered gets a 500 sent for it.
Result<std::unique_ptr<HttpServer>> serve_http(asio::any_io_executor executor, HttpServerOptions options,
                                               HttpHandler handler);

}  // namespace baton::net
