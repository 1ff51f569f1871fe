#include "transfer/handoff_port.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "transfer/pull_options.h"
#include "transport/tcp/auth.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kGreetTimeout = std::chrono::seconds(5);
constexpr Duration kConnectTimeout = std::chrono::seconds(5);

}  // namespace

HandoffPort::HandoffPort(asio::io_context& io, const PullConnectorOptions& options, std::function<size_t()> open,
                         Serve serve, Counter refused)
    : io_(io),
      options_(options),
      tls_(tls_options(options.tls)),
      open_(std::move(open)),
      serve_(std::move(serve)),
      refused_(refused) {}

Result<void> HandoffPort::listen() {
  BATON_TRY_ASSIGN(listener_, net::listen(io_.get_executor(), {.host = options_.host,
                                                               .port = options_.port,
                                                               .tls = options_.tls.enabled() ? &tls_ : nullptr}));
  port_ = listener_->port();
  asio::co_spawn(io_, [this] { return accept_loop(); }, asio::detached);
  return {};
}

void HandoffPort::close() {
  closed_ = true;
  listener_->close();
  for (const auto& [id, stream] : unknown_) stream->close();
}

net::Task<void> HandoffPort::accept_loop() {
  while (!closed_) {
    auto stream = co_await listener_->accept();
    if (closed_) break;
    if (!stream) {
      if (stream.error().code() == Code::kCancelled) break;
      // Out of descriptors, or one bad client: neither may spin nor end the loop.
      asio::steady_timer pause(io_, std::chrono::milliseconds(20));
      co_await pause.async_wait(kAwait);
      continue;
    }
    if (open_() + unknown_.size() >= static_cast<size_t>(options_.connections_max)) {
      refused_.add();
      continue;
    }
    const uint64_t id = next_++;
    unknown_[id] = stream->get();
    asio::co_spawn(io_, admit(id, *std::move(stream)), asio::detached);
  }
}

net::Task<void> HandoffPort::admit(uint64_t id, std::unique_ptr<net::Stream> stream) {
  const auto known = co_await transport::authenticate_as_server(*stream, options_.secret, kGreetTimeout);
  unknown_.erase(id);
  if (known && !closed_) {
    co_await serve_(std::move(stream));
  } else if (!closed_) {
    refused_.add();
    log_debug("event=handoff_refused peer={} reason=\"{}\"", stream->peer(), known.error().message());
  }
}

net::Task<Result<std::unique_ptr<net::Stream>>> connect_to_port(const PullConnectorOptions& options,
                                                                const net::TlsOptions* tls, std::string host,
                                                                int port) {
  BATON_CO_TRY_ASSIGN(auto stream, co_await net::connect({.host = std::move(host),
                                                          .port = port,
                                                          .timeout = kConnectTimeout,
                                                          .tls = tls,
                                                          .allow = options.peers.predicate()}));
  BATON_CO_TRY(co_await transport::authenticate_as_client(*stream, options.secret, kConnectTimeout));
  co_return stream;
}

}  // namespace baton::transfer
