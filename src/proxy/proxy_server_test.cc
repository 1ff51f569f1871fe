// The proxy between a raw client and fake engines, all in process over loopback.
#include "proxy/proxy_server.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "net/http_client.h"
#include "net/sse.h"
#include "net/test_support.h"
#include "proxy/door.h"
#include "proxy/request_plan.h"

namespace baton::proxy {
namespace {

using namespace std::chrono_literals;
using net::RawClient;
using net::wait_until;

// An engine that answers as its behaviour says. Runs on a thread of its own, so that it can die by itself.
class FakeEngine {
 public:
  using Behaviour = std::function<net::Task<void>(FakeEngine&, const Json& body, net::HttpResponder&)>;
  explicit FakeEngine(Behaviour behaviour, std::string host = "127.0.0.1", int port = 0)
      : behaviour_(std::move(behaviour)) {
    net::HttpServerOptions options{.listen = {.host = std::move(host), .port = port}};
    server_ =
        net::serve_http(context_.executor(), options, [this](net::HttpRequest& request, net::HttpResponder& responder) {
          return handle(request, responder);
        }).value();
  }
  ~FakeEngine() { die(); }
  std::string role;                      // for behaviours that both roles share
  std::atomic<int> service_status{200};  // of what generates nothing, but for /health
  void die() {
    if (!server_) return;
    server_->close();
    EXPECT_TRUE(wait_until([&] { return server_->open_connections() == 0; }));
    server_.reset();
  }
  int port() const { return server_->port(); }
  std::vector<std::string> seen(const std::string& path) {
    std::lock_guard lock(mutex_);
    return bodies_[path];
  }
  std::string header(const std::string& name) {
    std::lock_guard lock(mutex_);
    return std::string(last_headers_.get(name).value_or(""));
  }

 private:
  net::Task<void> handle(net::HttpRequest& request, net::HttpResponder& responder) {
    {
      std::lock_guard lock(mutex_);
      bodies_[request.path].push_back(request.body);
      if (request.path.starts_with("/v1/")) last_headers_ = request.headers;
    }
    const bool generates = request.path == "/v1/completions" || request.path == "/v1/chat/completions";
    if (generates) {
      const Json body = Json::parse(request.body);
      co_await behaviour_(*this, body, responder);
    } else {
      const int status = request.path == "/health" ? 200 : service_status.load();
      (void)co_await responder.respond({.status = status, .headers = {}, .body = R"({"data":[{"id":"m"}]})"});
    }
  }

  Behaviour behaviour_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> bodies_;
  net::HttpHeaders last_headers_;
  net::ContextThread context_;
  std::unique_ptr<net::HttpServer> server_;
};

net::Task<void> respond_json(net::HttpResponder& responder, int status, std::string body) {
  net::HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
  response.headers.add("Content-Type", "application/json");
  (void)co_await responder.respond(std::move(response));
}
net::Task<void> begin_sse(net::HttpResponder& responder) {
  net::HttpHeaders headers;
  headers.add("Content-Type", "text/event-stream");
  (void)co_await responder.begin_stream(200, headers);
}
// Waits until its client goes (true) or `time` is over.
net::Task<bool> wait_for_gone(net::HttpResponder& responder, Duration time) {
  net::asio::steady_timer timer(responder.executor(), time);
  responder.on_client_gone([&] { timer.cancel(); });
  boost::system::error_code ignored;
  co_await timer.async_wait(net::asio::redirect_error(net::asio::use_awaitable, ignored));
  responder.on_client_gone(nullptr);
  co_return responder.client_gone();
}

net::Task<void> good_prefill(FakeEngine&, const Json& body, net::HttpResponder& responder) {
  EXPECT_EQ(body["max_tokens"], 1);
  co_await respond_json(responder, 200,
                        R"({"choices":[{"index":0,"text":"a"}],"kv_transfer_params":{"do_remote_prefill":true,"r":5},)"
                        R"("usage":{"prompt_tokens_details":{"cached_tokens":4}}})");
}

// A stream whose bytes are cut at odd places: two bytes a chunk.
net::Task<void> good_decode(FakeEngine&, const Json& body, net::HttpResponder& responder) {
  if (!body.value("stream", false)) {
    co_await respond_json(responder, 200,
                          R"({"choices":[{"index":0,"text":"hello","token_ids":[1]}],"usage":)"
                          R"({"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}})");
    co_return;
  }
  co_await begin_sse(responder);
  std::string bytes;
  for (const char* text : {"he", "l\u00e9", "lo"})
    bytes += net::sse_event(Json{{"choices", {{{"index", 0}, {"text", text}, {"token_ids", {1, 2}}}}}}.dump());
  bytes +=
      net::sse_event(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6}})") + net::sse_event("[DONE]");
  for (size_t at = 0; at < bytes.size(); at += 2)
    if (!co_await responder.write_chunk(std::string_view(bytes).substr(at, 2))) co_return;
  (void)co_await responder.end_stream();
}

net::HostPort local(const FakeEngine& engine, std::string host = "127.0.0.1") {
  return {std::move(host), engine.port()};
}

class Proxy : public testing::Test {
 protected:
  void start(std::vector<net::HostPort> prefill, std::vector<net::HostPort> decode, ProxyOptions options = {}) {
    options.http.listen.port = 0;
    options.prefill = std::move(prefill);
    options.decode = std::move(decode);
    options.probe_interval = 100ms;
    server_ = ProxyServer::start(context_.executor(), options).value();
  }
  ~Proxy() override {
    if (!server_) return;
    server_->close();
    EXPECT_TRUE(wait_until([&] { return server_->requests_in_flight() == 0; }));
  }
  // Until the proxy has heard of each: the first engine is then the first choice.
  void settle(const std::vector<FakeEngine*>& engines) {
    for (auto* each : engines) EXPECT_TRUE(wait_until([&] { return each->seen("/health").size() >= 2; }));
  }
  std::string ask(const std::string& body, const std::string& path = "/v1/completions", const std::string& more = "") {
    RawClient client(server_->port());
    client.send(fmt::format("POST {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n{}", path,
                            body.size(), more, body));
    return client.receive();
  }
  std::string get(const std::string& path, const std::string& method = "GET") {
    RawClient client(server_->port());
    client.send(method + " " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    return client.receive();
  }
  bool metric_is(const std::string& line) { return get("/metrics").find("\n" + line + "\n") != std::string::npos; }
  net::ContextThread context_;
  std::unique_ptr<ProxyServer> server_;
};

constexpr auto kStream = R"({"prompt":"hi","stream":true})";
constexpr auto kWhole = R"({"prompt":"hi"})";

TEST_F(Proxy, StreamsThroughBothEnginesWhateverTheCuts) {
  FakeEngine p(good_prefill), d(good_decode);
  start({local(p)}, {local(d)});
  const std::string got = ask(kStream, "/v1/completions", "X-Request-Id: mine\r\nAuthorization: Bearer k\r\n");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 ")) << got;
  EXPECT_NE(got.find("l\u00e9"), std::string::npos);
  EXPECT_NE(got.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_EQ(got.find("usage"), std::string::npos);
  EXPECT_EQ(got.find("\"token_ids\":[1"), std::string::npos);
  EXPECT_EQ(Json::parse(d.seen("/v1/completions").at(0))["kv_transfer_params"]["r"], 5);
  for (auto* engine : {&p, &d}) {
    EXPECT_EQ(engine->header("X-Request-Id"), "mine");
    EXPECT_EQ(engine->header("Authorization"), "Bearer k");
  }
  const std::string whole = ask(kWhole, "/v1/chat/completions");
  EXPECT_NE(whole.find("hello"), std::string::npos);
  EXPECT_NE(whole.find("\"cached_tokens\":4"), std::string::npos);
  EXPECT_TRUE(metric_is("baton_proxy_handoffs_total 2"));
  EXPECT_TRUE(metric_is("baton_proxy_completion_tokens_total 8"));
}

TEST_F(Proxy, DeadEnginesArePassedOverAndComeBack) {
  FakeEngine p(good_prefill), d(good_decode);
  auto p2 = std::make_unique<FakeEngine>(good_prefill), d2 = std::make_unique<FakeEngine>(good_decode);
  const auto p2_at = local(*p2), d2_at = local(*d2);
  start({p2_at, local(p)}, {d2_at, local(d)});
  p2.reset();
  d2.reset();
  for (int i = 0; i < 5; ++i) EXPECT_NE(ask(kStream).find("[DONE]"), std::string::npos);
  const std::string down =
      fmt::format("baton_proxy_instance_up{{instance=\"127.0.0.1:{}\",role=\"decode\"}}", d2_at.port);
  EXPECT_TRUE(wait_until([&] { return metric_is(down + " 0"); }, 2000));
  d2 = std::make_unique<FakeEngine>(good_decode, "127.0.0.1", d2_at.port);
  EXPECT_TRUE(wait_until([&] { return metric_is(down + " 1"); }, 2000));
}

TEST_F(Proxy, WithoutPrefillEnginesDecodeServesAloneAndWithoutDecodeIs503) {
  FakeEngine d(good_decode);
  start({{"127.0.0.1", 1}}, {local(d)});
  EXPECT_NE(ask(kWhole).find("hello"), std::string::npos);
  EXPECT_FALSE(Json::parse(d.seen("/v1/completions").at(0)).contains("kv_transfer_params"));
  d.die();
  const std::string got = ask(kWhole);
  EXPECT_TRUE(got.starts_with("HTTP/1.1 50")) << got;
  EXPECT_TRUE(wait_until([&] { return get("/health").starts_with("HTTP/1.1 503 "); }, 2000));
}

TEST_F(Proxy, EmptyAndBrokenStreamsFailOverOrEndWithAnError) {
  // Which of the two is asked first depends on whose health is known first.
  std::atomic<int> calls{0};
  const auto empty_at_first = [&](FakeEngine& engine, const Json& body,
                                  net::HttpResponder& responder) -> net::Task<void> {
    if (calls.fetch_add(1) > 0) co_return co_await good_decode(engine, body, responder);
    co_await begin_sse(responder);
    (void)co_await responder.end_stream();
  };
  FakeEngine p(good_prefill), d1(empty_at_first), d2(empty_at_first);
  start({local(p)}, {local(d1), local(d2)});
  const std::string got = ask(kStream);
  EXPECT_NE(got.find("lo"), std::string::npos);
  EXPECT_NE(got.find("[DONE]"), std::string::npos);
  EXPECT_EQ(p.seen("/v1/completions").size(), 2u);  // a new prefill for the second D
  EXPECT_TRUE(wait_until([&] { return p.seen("/abort_requests").size() == 1; }));
}

TEST_F(Proxy, AStreamThatBreaksAfterItsFirstByteEndsWithErrorAndDone) {
  FakeEngine p(good_prefill);
  FakeEngine d([](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    co_await begin_sse(responder);
    (void)co_await responder.write_chunk(net::sse_event(R"({"choices":[{"index":0,"text":"a"}]})") + "data: {\"ch");
  });
  start({local(p)}, {local(d)});
  const std::string got = ask(kStream);
  EXPECT_NE(got.find("\"text\":\"a\""), std::string::npos);
  EXPECT_LT(got.find("\"error\""), got.find("[DONE]"));
  EXPECT_TRUE(got.ends_with("0\r\n\r\n"));
}

TEST_F(Proxy, ClientThatLeavesIsSeenByTheEngineAtWork) {
  std::atomic<int> waiting{0}, saw{0};
  const auto hang = [&](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    ++waiting;
    if (co_await wait_for_gone(responder, 3s)) ++saw;
  };
  FakeEngine hung_p(hang), d(good_decode);
  start({local(hung_p)}, {local(d)});
  {
    RawClient client(server_->port());
    client.send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n{}", kWhole));
    ASSERT_TRUE(wait_until([&] { return waiting == 1; }));
  }
  EXPECT_TRUE(wait_until([&] { return saw == 1; }, 300));
  EXPECT_TRUE(wait_until([&] { return hung_p.seen("/abort_requests").size() == 1; }));
  EXPECT_TRUE(d.seen("/v1/completions").empty());
}

TEST_F(Proxy, ClientThatLeavesAStreamEndsItAtDecode) {
  std::atomic<bool> saw{false};
  FakeEngine p(good_prefill);
  FakeEngine d([&](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    co_await begin_sse(responder);
    (void)co_await responder.write_chunk(net::sse_event(R"({"choices":[{"index":0,"text":"a"}]})"));
    saw = co_await wait_for_gone(responder, 3s);
  });
  start({local(p)}, {local(d)});
  {
    RawClient client(server_->port());
    client.send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 29\r\n\r\n{}", kStream));
    EXPECT_NE(client.receive("\"a\"").find("200 OK"), std::string::npos);
  }
  EXPECT_TRUE(wait_until([&] { return saw.load(); }, 300));
}

TEST_F(Proxy, AHungEngineIsCutOffByItsDeadline) {
  FakeEngine hung([](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    (void)co_await wait_for_gone(responder, 3s);
  });
  FakeEngine d(good_decode);
  ProxyOptions options;
  options.prefill_timeout = 200ms;
  options.retry.max_retries = 1;
  start({local(hung)}, {local(d)}, options);
  EXPECT_NE(ask(kWhole).find("hello"), std::string::npos);
}

TEST_F(Proxy, ClientErrorsPassThrough) {
  FakeEngine p([](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    co_await respond_json(responder, 404, R"({"error":{"message":"no such model"}})");
  });
  FakeEngine d(good_decode);
  start({local(p)}, {local(d)});
  const std::string got = ask(kWhole);
  EXPECT_TRUE(got.starts_with("HTTP/1.1 404 "));
  EXPECT_NE(got.find("no such model"), std::string::npos);
  EXPECT_EQ(p.seen("/v1/completions").size(), 1u);
  EXPECT_TRUE(ask("{").starts_with("HTTP/1.1 400 "));
}

TEST_F(Proxy, WhatAnEngineDoesNotDoIsToldOnceAndHurtsNobodyElse) {
  const auto picky = [](FakeEngine& self, const Json& body, net::HttpResponder& responder) -> net::Task<void> {
    if (body.contains("guided_json") || body.contains("use_beam_search")) {
      co_await respond_json(responder, 501, R"({"error":{"message":"not in this version of Baton"}})");
    } else if (self.role == "p") {
      co_await good_prefill(self, body, responder);
    } else {
      co_await good_decode(self, body, responder);
    }
  };
  FakeEngine p(picky), d(picky);
  p.role = "p";
  start({local(p)}, {local(d)});
  for (int i = 0; i < 5; ++i) {
    for (const char* body : {R"({"prompt":"a","guided_json":{}})", R"({"prompt":"a","use_beam_search":true})"}) {
      const std::string got = ask(body);
      EXPECT_TRUE(got.starts_with("HTTP/1.1 501 ")) << got;
      EXPECT_NE(got.find("not in this version of Baton"), std::string::npos);
    }
  }
  EXPECT_EQ(p.seen("/v1/completions").size(), 5u);
  EXPECT_EQ(d.seen("/v1/completions").size(), 5u);
  EXPECT_NE(ask(kWhole).find("hello"), std::string::npos);
  EXPECT_TRUE(metric_is("baton_proxy_handoffs_total 1"));
}

TEST_F(Proxy, ServiceRoutesPassOnWhatAnEngineDoesNotDo) {
  FakeEngine d(good_decode);
  d.service_status = 501;
  start({}, {local(d)});
  EXPECT_TRUE(ask("{}", "/tokenize").starts_with("HTTP/1.1 501 "));
  d.service_status = 503;
  EXPECT_TRUE(ask("{}", "/tokenize").starts_with("HTTP/1.1 503 "));
}

TEST_F(Proxy, ABusyEngineIsToldOfWithoutARetry) {
  FakeEngine d([](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    net::HttpResponse response{.status = 429, .headers = {}, .body = R"({"error":{"message":"queue full"}})"};
    response.headers.add("Retry-After", "9");
    (void)co_await responder.respond(std::move(response));
  });
  FakeEngine other(good_decode);
  start({}, {local(d)});
  const std::string got = ask(kWhole);
  EXPECT_TRUE(got.starts_with("HTTP/1.1 429 ")) << got;
  EXPECT_NE(got.find("Retry-After: 9\r\n"), std::string::npos);
  EXPECT_EQ(d.seen("/v1/completions").size(), 1u);
  ask(Json{{"type", "decode"}, {"instances", fmt::format("127.0.0.1:{}", other.port())}}.dump(), "/instances/add");
  settle({&other});
  for (int i = 0; i < 5; ++i) EXPECT_NE(ask(kWhole).find("hello"), std::string::npos);
}

TEST_F(Proxy, ABurstAfterFailuresIsServedOnceTheEngineIsWell) {
  std::atomic<bool> sick{true};
  FakeEngine d([&](FakeEngine& self, const Json& body, net::HttpResponder& responder) -> net::Task<void> {
    if (sick) {
      co_await respond_json(responder, 500, "{}");
    } else {
      (void)co_await wait_for_gone(responder, 20ms);  // so that they overlap
      co_await good_decode(self, body, responder);
    }
  });
  ProxyOptions options;
  options.health.open_for = options.health.open_for_max = 3600s;  // time alone does not help
  start({}, {local(d)}, options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask(kWhole).starts_with("HTTP/1.1 50"));
  sick = false;
  std::atomic<int> served{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 20; ++i) clients.emplace_back([&] { served += ask(kWhole).find("hello") != std::string::npos; });
  for (auto& each : clients) each.join();
  EXPECT_EQ(served, 20);
}

TEST_F(Proxy, ARetryDoesNotCollideWithTheRequestItRepeats) {
  std::mutex mutex;
  std::set<std::string> ids;
  FakeEngine d([&](FakeEngine& self, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    const std::string id = self.header("X-Request-Id");
    bool fresh = false;
    size_t nth = 0;
    {
      std::lock_guard lock(mutex);
      fresh = ids.insert(id).second;
      nth = ids.size();
    }
    if (!fresh) {
      co_await respond_json(responder, 409, R"({"error":{"message":"in use by a live request"}})");
    } else if (nth == 1) {
      co_await respond_json(responder, 500, "{}");
    } else {
      co_await respond_json(responder, 200, Json{{"id", "cmpl-" + id}, {"choices", {{{"text", "x"}}}}}.dump());
    }
  });
  start({}, {local(d)});
  const std::string got = ask(R"({"prompt":["a","b"]})", "/v1/completions", "X-Request-Id: mine\r\n");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 ")) << got;
  EXPECT_NE(got.find(R"("id":"cmpl-mine")"), std::string::npos) << got;
}

TEST_F(Proxy, AnswersAsTheEngineDoesToOddMethodsAndBodies) {
  FakeEngine d(good_decode);
  ProxyOptions options;
  options.api_keys = {"secret"};  // a preflight carries no key
  start({}, {local(d)}, options);
  for (const char* path : {"/v1/completions", "/health", "/nothing"}) {
    const std::string got = get(path, "OPTIONS");
    EXPECT_TRUE(got.starts_with("HTTP/1.1 200 ")) << got;
    EXPECT_NE(got.find("Access-Control-Allow-Origin: *\r\n"), std::string::npos);
    EXPECT_NE(got.find("Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n"), std::string::npos);
    EXPECT_NE(got.find("Access-Control-Allow-Headers: Authorization, Content-Type, X-Request-Id\r\n"),
              std::string::npos);
  }
  for (const char* path : {"/health", "/metrics", "/version", "/load"}) {
    const std::string got = get(path, "HEAD");
    EXPECT_TRUE(got.starts_with("HTTP/1.1 405 ")) << got;
    EXPECT_NE(got.find("Allow: GET\r\n"), std::string::npos) << got;
  }
  EXPECT_NE(get("/ping", "PUT").find("Allow: GET, POST\r\n"), std::string::npos);
  EXPECT_TRUE(get("/health", "POST").starts_with("HTTP/1.1 405 "));
  const std::string key = "Authorization: Bearer secret\r\n";
  const std::string plain = ask(kWhole, "/v1/completions", key + "Content-Type: text/plain\r\n");
  EXPECT_TRUE(plain.starts_with("HTTP/1.1 415 ")) << plain;
  EXPECT_NE(plain.find("Only 'application/json' is allowed"), std::string::npos);
  EXPECT_NE(ask(kWhole, "/v1/completions", key + "Content-Type: application/json; charset=utf-8\r\n").find("hello"),
            std::string::npos);
  EXPECT_NE(get("/load").find(R"({"server_load":0})"), std::string::npos);
}

TEST_F(Proxy, TextFromOutsideStaysOnItsLogLine) {
  FakeEngine d([](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    co_await begin_sse(responder);
    (void)co_await responder.write_chunk("data: {\"error\":\"x\",\ndata: \"event=forged\":1}\n\n");
    (void)co_await responder.end_stream();
  });
  start({}, {local(d)});
  testing::internal::CaptureStderr();
  ask(kStream, "/v1/completions", "X-Request-Id: a\"b\r\n");
  EXPECT_TRUE(wait_until([&] { return metric_is("baton_proxy_requests_total{status=\"502\"} 1"); }));
  server_->close();
  EXPECT_TRUE(wait_until([&] { return server_->requests_in_flight() == 0; }));
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_NE(logged.find(R"(failure="decode: {\"error\":\"x\",\x0a\"event=forged\":1}")"), std::string::npos) << logged;
  EXPECT_EQ(logged.find("a\"b"), std::string::npos);
}

TEST_F(Proxy, DrainWaitsForTheInstancesOwnRequests) {
  std::atomic<bool> go{false}, started{false};
  FakeEngine p(good_prefill), other(good_decode);
  FakeEngine d([&](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    started = true;
    while (!go) (void)co_await wait_for_gone(responder, 5ms);
    co_await respond_json(responder, 200, R"({"choices":[{"text":"drained"}]})");
  });
  start({local(p)}, {local(d), local(other)});
  settle({&d, &other});
  std::string slow;
  std::thread client([&] { slow = ask(kWhole); });
  ASSERT_TRUE(wait_until([&] { return started.load(); }));
  const std::string d_name = fmt::format("127.0.0.1:{}", d.port());
  const std::string removed = ask(Json{{"type", "decode"}, {"instances", d_name}}.dump(), "/instances/remove");
  EXPECT_NE(removed.find("\"current_decode_instances\":1"), std::string::npos) << removed;
  EXPECT_NE(ask(kWhole).find("hello"), std::string::npos);  // goes to the other, and traffic does not hold up the drain
  go = true;
  client.join();
  EXPECT_NE(slow.find("drained"), std::string::npos);
  ask(Json{{"type", "decode"}, {"instances", {d_name}}}.dump(), "/instances/add");
  EXPECT_TRUE(
      wait_until([&] { return get("/healthcheck").find("\"decode_instances\":2") != std::string::npos; }, 2000));
  EXPECT_TRUE(ask(R"({"type":"x","instances":"a:1"})", "/instances/add").starts_with("HTTP/1.1 400 "));
}

TEST_F(Proxy, ServiceRoutesIpv6LimitsAndKeys) {
  FakeEngine p(good_prefill, "::1"), d(good_decode, "::1");
  ProxyOptions options;
  options.api_keys = {"secret"};
  start({local(p, "::1")}, {local(d, "::1")}, options);
  EXPECT_TRUE(ask(kWhole).starts_with("HTTP/1.1 401 "));
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_NE(ask(kWhole, "/v1/completions", key).find("hello"), std::string::npos);
  EXPECT_NE(get("/healthcheck").find(R"({"status":"ok","prefill_instances":1,"decode_instances":1,"request_num":0})"),
            std::string::npos);
  EXPECT_TRUE(get("/health").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(get("/nothing").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(get("/instances/add").starts_with("HTTP/1.1 401 "));
  EXPECT_TRUE(ask("", "/reset_prefix_cache?x=1", key).starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(p.seen("/reset_prefix_cache").size() + d.seen("/reset_prefix_cache").size(), 2u);
  EXPECT_NE(ask(R"({"prompt":"x"})", "/tokenize", key).find("\"id\":\"m\""), std::string::npos);
}

TEST_F(Proxy, BeyondItsLimitItSaysTryAgain) {
  FakeEngine p(good_prefill), d(good_decode);
  ProxyOptions options;
  options.max_in_flight = 0;
  start({local(p)}, {local(d)}, options);
  const std::string got = ask(kWhole);
  EXPECT_TRUE(got.starts_with("HTTP/1.1 429 "));
  EXPECT_NE(got.find("Retry-After: 1"), std::string::npos);
}

TEST(Door, NoClientTakesAllPlaces) {
  Door door;
  int entered = 0;
  while (door.ask("floods", 90) == Door::Answer::kOpen && entered < 1000) {
    door.enter("floods");
    ++entered;
  }
  EXPECT_EQ(entered, 80);
  EXPECT_EQ(door.ask("floods", 90), Door::Answer::kShareTaken);
  EXPECT_EQ(door.ask("another", 90), Door::Answer::kOpen);
  for (int i = 0; i < 10; ++i) door.enter(std::to_string(i));
  EXPECT_EQ(door.ask("another", 90), Door::Answer::kFull);
  door.leave("floods");
  EXPECT_EQ(door.ask("another", 90), Door::Answer::kOpen);
}

TEST_F(Proxy, EnginesHearWhoAsksWhateverTheClientSays) {
  FakeEngine p(good_prefill), d(good_decode);
  start({local(p)}, {local(d)});
  ask(kWhole, "/v1/completions", "X-Forwarded-For: 192.0.2.1\r\n");
  for (auto* engine : {&p, &d}) EXPECT_EQ(engine->header("X-Forwarded-For"), "127.0.0.1");
}

TEST(RunProxy, StopsWhenAskedAndSaysWhyItCannotStart) {
  std::stop_source stop;
  ProxyOptions options;
  EXPECT_FALSE(run_proxy(options, stop.get_token()));  // no decode instance
  options.decode = {{"127.0.0.1", 1}};
  options.http.listen.port = 0;
  std::thread stopper([&] {
    net::sleep_ms(100);
    stop.request_stop();
  });
  EXPECT_EQ(run_proxy(options, stop.get_token()).value(), 0);
  stopper.join();
}

// D first: calls the metaserver it was given, as often as it is told, and answers with the statuses.
net::Task<void> layerwise_decode(FakeEngine&, const Json& body, net::HttpResponder& responder) {
  const std::string url = body["kv_transfer_params"]["metaserver"];
  const auto at = net::parse_host_port(url.substr(7, url.find('/', 7) - 7)).value();
  const auto client = net::make_http_client(responder.executor());
  std::string said;
  for (int i = 0; i < 2; ++i) {
    net::HttpClientRequest call{
        .host = at.host, .port = at.port, .method = "POST", .target = url.substr(url.find('/', 7))};
    call.body = R"({"request_id":"cmpl-x-0","remote_port":7})";
    const auto answer = co_await client->request(std::move(call));
    said += answer ? std::to_string(answer->status) + " " : answer.error().to_string();
  }
  co_await respond_json(responder, 200, Json{{"choices", {{{"index", 0}, {"text", said}}}}}.dump());
}

TEST_F(Proxy, DecodeFirstPrefillsOnceForRepeatedCallsOfTheMetaserver) {
  FakeEngine p(good_prefill), d(layerwise_decode);
  start({local(p)}, {local(d)}, {.decode_first = true});
  EXPECT_NE(ask(kWhole, "/v1/completions", "X-Request-Id: mine\r\n").find("200 200 "), std::string::npos);
  ASSERT_EQ(p.seen("/v1/completions").size(), 1u);
  const Json to_p = Json::parse(p.seen("/v1/completions")[0]);
  EXPECT_EQ(to_p["kv_transfer_params"]["remote_port"], 7);
  EXPECT_EQ(p.header("X-Request-Id"), "mine");
  EXPECT_TRUE(get("/v1/metaserver", "POST").starts_with("HTTP/1.1 400 "));
  EXPECT_TRUE(ask("{}", "/v1/metaserver?key=x-1").starts_with("HTTP/1.1 404 "));
  EXPECT_EQ(get("/healthcheck").find("request_num"), std::string::npos);
}

TEST_F(Proxy, DecodeFirstTellsDWhenNoPrefillWorks) {
  FakeEngine p([](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    co_await respond_json(responder, 500, "{}");
  });
  FakeEngine d(layerwise_decode);
  start({local(p)}, {local(d)}, {.decode_first = true});
  const std::string got = ask(kWhole);
  EXPECT_NE(got.find("502 502 "), std::string::npos) << got;
}

TEST_F(Proxy, DecodeFirstALeavingClientReachesBothEngines) {
  std::atomic<bool> p_began = false, p_gone = false, d_gone = false;
  FakeEngine p([&](FakeEngine&, const Json&, net::HttpResponder& responder) -> net::Task<void> {
    p_began = true;
    p_gone = co_await wait_for_gone(responder, 5s);
  });
  FakeEngine d([&](FakeEngine&, const Json& body, net::HttpResponder& responder) -> net::Task<void> {
    const std::string url = body["kv_transfer_params"]["metaserver"];
    const auto at = net::parse_host_port(url.substr(7, url.find('/', 7) - 7)).value();
    const auto client = net::make_http_client(responder.executor());
    net::HttpClientRequest call{
        .host = at.host, .port = at.port, .method = "POST", .target = url.substr(url.find('/', 7)), .body = "{}"};
    call.cancellation = std::make_shared<net::HttpCancellation>();
    responder.on_client_gone([&d_gone, cancel = call.cancellation] {
      d_gone = true;
      cancel->cancel();
    });
    (void)co_await client->request(std::move(call));
    responder.on_client_gone(nullptr);
  });
  start({local(p)}, {local(d)}, {.decode_first = true});
  {
    RawClient client(server_->port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                std::to_string(std::string_view(kStream).size()) + "\r\n\r\n" + kStream);
    EXPECT_TRUE(wait_until([&] { return p_began.load(); }));
  }
  EXPECT_TRUE(wait_until([&] { return p_gone && d_gone; }, 3000));
}

TEST(DecodeFirstProxy, AHostThatNoEngineCouldCallIsRefusedWithTheReason) {
  net::ContextThread context;
  for (const char* host : {"0.0.0.0", "::", "*", ""}) {
    ProxyOptions options{.decode = {{"127.0.0.1", 1}}, .decode_first = true};
    options.http.listen = {.host = host, .port = 0};
    const auto refused = ProxyServer::start(context.executor(), options);
    ASSERT_FALSE(refused) << host;
    EXPECT_NE(refused.error().message().find("wildcard"), std::string::npos);
  }
}

}  // namespace
}  // namespace baton::proxy
