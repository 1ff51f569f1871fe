// The port of a hand-off's listening end: accepts, and lets in who proves to know the secret. Lives on its io_context's
// thread; what it has accepted is its owner's.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>

#include "base/metrics.h"
#include "net/stream.h"
#include "transfer/pull_connector.h"

namespace baton::transfer {

class HandoffPort {
 public:
  using Serve = std::function<net::Task<void>(std::unique_ptr<net::Stream>)>;
  // `open`: connections that the owner has; together with those that are not known yet they are at most
  // options.connections_max. `serve`: what to do with one, in a coroutine of its own. `refused` counts.
  HandoffPort(boost::asio::io_context& io, const PullConnectorOptions& options, std::function<size_t()> open,
              Serve serve, Counter refused);

  Result<void> listen();
  int port() const { return port_; }
  // Accepts no more, and forgets who is not known yet.
  void close();

 private:
  net::Task<void> accept_loop();
  net::Task<void> admit(uint64_t id, std::unique_ptr<net::Stream> stream);

  boost::asio::io_context& io_;
  const PullConnectorOptions& options_;
  const net::TlsOptions tls_;
  const std::function<size_t()> open_;
  const Serve serve_;
  Counter refused_;
  std::unique_ptr<net::Listener> listener_;
  std::map<uint64_t, net::Stream*> unknown_;  // being asked for the secret
  uint64_t next_ = 1;
  bool closed_ = false;
  int port_ = 0;
};

// The other end: connects to such a port and proves to know the secret. tls: outlives the stream; null: none.
net::Task<Result<std::unique_ptr<net::Stream>>> connect_to_port(const PullConnectorOptions& options,
                                                                const net::TlsOptions* tls, std::string host, int port);

}  // namespace baton::transfer
