#include "apps/serve/metaserver_client.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "net/http_client.h"
#include "net/stream.h"

namespace baton::apps {
namespace {

namespace asio = boost::asio;
constexpr int kAttempts = 3;
constexpr size_t kLongestUrl = 2048;
constexpr size_t kLongestAnswer = 1 << 20;

constexpr std::string_view kHttp = "http://", kHttps = "https://";

bool over_tls(const std::string& url) { return url.starts_with(kHttps); }

// http[s]://host:port/path?query
Result<net::HttpClientRequest> request_for(const std::string& url) {
  const std::string_view scheme = over_tls(url) ? kHttps : kHttp;
  if (!url.starts_with(scheme) || url.size() > kLongestUrl) {
    return fail(Code::kInvalidArgument, "kv_transfer_params.metaserver '{}': http[s]://HOST:PORT/PATH is needed",
                url.substr(0, kLongestUrl));
  }
  const auto slash = url.find('/', scheme.size());
  const auto authority = url.substr(scheme.size(), slash == std::string::npos ? slash : slash - scheme.size());
  BATON_TRY_ASSIGN(auto at, net::parse_host_port(authority, over_tls(url) ? 443 : 80));
  net::HttpClientRequest request{.host = at.host, .port = at.port, .method = "POST"};
  request.target = slash == std::string::npos ? "/" : url.substr(slash);
  request.headers.add("Content-Type", "application/json");
  return request;
}

}  // namespace

struct MetaserverClient::Inner {
  explicit Inner(Options options)
      : plain(net::make_http_client(io.get_executor(), {.max_response_bytes = kLongestAnswer, .allow = options.allow})),
        tls(net::make_http_client(io.get_executor(), {.tls = std::move(options.tls),
                                                      .use_tls = true,
                                                      .max_response_bytes = kLongestAnswer,
                                                      .allow = options.allow})) {}

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  std::unique_ptr<net::HttpClient> plain, tls;
  std::thread thread;

  net::Task<void> run(std::string url, std::string body, std::function<void(Result<void>)> done) {
    auto prepared = request_for(url);
    if (!prepared) co_return done(fail(prepared.error()));
    prepared->body = std::move(body);
    for (int attempt = 1;; ++attempt) {
      auto answer = co_await (over_tls(url) ? tls : plain)->request(*prepared);
      if (answer) {
        if (answer->status == 200) co_return done({});
        co_return done(
            fail(Code::kUnavailable, "{} answered {}: {}", url, answer->status, answer->body.substr(0, 300)));
      }
      if (attempt == kAttempts || answer.error().code() != Code::kUnavailable) co_return done(fail(answer.error()));
      asio::steady_timer pause(io, std::chrono::milliseconds(50) * attempt);
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
    }
  }
};

MetaserverClient::MetaserverClient(Options options) : inner_(std::make_unique<Inner>(std::move(options))) {
  inner_->thread = std::thread([inner = inner_.get()] { inner->io.run(); });
}

MetaserverClient::~MetaserverClient() { stop(); }

void MetaserverClient::call(std::string url, nlohmann::json body, std::function<void(Result<void>)> done) {
  asio::post(inner_->io, [inner = inner_.get(), url = std::move(url),
                          text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                          done = std::move(done)]() mutable {
    asio::co_spawn(inner->io, inner->run(std::move(url), std::move(text), std::move(done)), asio::detached);
  });
}

void MetaserverClient::stop() {
  if (!inner_->thread.joinable()) return;
  inner_->io.stop();
  inner_->thread.join();
}

}  // namespace baton::apps
