// The OpenAI-compatible HTTP server of one engine.
//
// start() listens at once; requests are served while the executor's io_context runs. Not for several engines: one
// process, one engine, one server.
#pragma once

#include <memory>

#include "server/server_context.h"

namespace baton::server {

class OpenAiServer {
 public:
  struct Parts {
    engine::Engine& engine;
    const text::Tokenizer& tokenizer;
    const text::ChatFormat* chat_format = nullptr;
    MetricRegistry& metrics;
  };
  static Result<std::unique_ptr<OpenAiServer>> start(net::asio::any_io_executor executor, Parts parts,
                                                     ServerOptions options);
  int port() const { return http_->port(); }
  void stop_accepting() { http_->stop_accepting(); }
  void close() { http_->close(); }
  int open_connections() const { return http_->open_connections(); }
  int64_t requests_in_flight() const { return context_->requests_in_flight.load(); }

 private:
  std::shared_ptr<ServerContext> context_;  // shared with the handlers that run
  std::unique_ptr<net::HttpServer> http_;
};

}  // namespace baton::server
