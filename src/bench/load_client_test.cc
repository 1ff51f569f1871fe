// What the client makes of a server's answers, over real sockets: times, counts, failures, the limit on concurrency.
#include "bench/load_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <thread>

#include "net/http_server.h"
#include "net/sse.h"

namespace baton::bench {
namespace {

namespace asio = net::asio;

// A server of three chunks, 20 ms apart, that follows the path: /v1/completions, /refuse, /error, /empty, /cut.
class TwinServer {
 public:
  TwinServer() {
    server_ = net::serve_http(context_.get_executor(), {}, [this](auto& request, auto& responder) {
                return answer(request, responder);
              }).value();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~TwinServer() {
    guard_.reset();
    context_.stop();
    thread_.join();
  }
  int port() const { return server_->port(); }
  int peak() const { return peak_; }
  std::string last_body;

 private:
  net::Task<void> answer(net::HttpRequest& request, net::HttpResponder& responder) {
    peak_ = std::max(peak_.load(), ++running_);
    last_body = request.body;
    if (request.path == "/refuse") {
      (void)co_await responder.respond({.status = 400, .headers = {}, .body = "{\"error\":\"bad words\"}"});
    } else {
      net::HttpHeaders headers;
      headers.add("Content-Type", "text/event-stream");
      (void)co_await responder.begin_stream(200, std::move(headers));
      asio::steady_timer timer(co_await asio::this_coro::executor);
      for (int i = 0; i < 3 && request.path != "/empty"; ++i) {
        timer.expires_after(std::chrono::milliseconds(request.path == "/slow" ? 2000 : 20));
        co_await timer.async_wait(asio::use_awaitable);
        (void)co_await responder.write_chunk(net::sse_event(R"({"choices":[{"index":0,"text":"ab"}],"usage":null})"));
      }
      if (request.path == "/error")
        (void)co_await responder.write_chunk(net::sse_event(R"({"error":{"message":"x"}})"));
      (void)co_await responder.write_chunk(
          net::sse_event(R"({"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":5}})"));
      (void)co_await responder.write_chunk("data: [DONE]\n\n");
      (void)co_await responder.end_stream();
    }
    --running_;
  }

  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_ = asio::make_work_guard(context_);
  std::unique_ptr<net::HttpServer> server_;
  std::thread thread_;
  std::atomic<int> running_{0}, peak_{0};
};

LoadResult load(const TwinServer& server, const std::string& path, size_t count, int64_t concurrency = 0) {
  LoadOptions options{.origin = {.host = "127.0.0.1", .port = server.port()}, .endpoint = path};
  options.send_at_s.assign(count, 0.0);
  options.max_concurrency = concurrency;
  options.keep_text = true;
  options.payload.model = "m";
  return run_load(std::vector<Sample>(count, {.prompt = "hello", .prompt_ids = {1, 2}, .output_tokens = 5}), options);
}

TEST(LoadClient, a_stream_is_timed_by_its_chunks) {
  TwinServer server;
  const auto result = load(server, "/v1/completions", 1);
  const auto& record = result.records.at(0);
  EXPECT_TRUE(record.success) << record.error;
  EXPECT_EQ(record.prompt_tokens, 11);
  EXPECT_EQ(record.output_tokens, 5);
  EXPECT_EQ(record.text, "ababab");
  ASSERT_EQ(record.itl_s.size(), 2u);
  EXPECT_GE(record.ttft_s, 0.019);
  EXPECT_GE(record.itl_s[0], 0.010);
  EXPECT_NEAR(record.latency_s, record.ttft_s + record.itl_s[0] + record.itl_s[1], 1e-9);
  EXPECT_GE(result.duration_s, record.latency_s);
}

TEST(LoadClient, concurrency_is_bounded_and_waiting_is_queue_time) {
  TwinServer server;
  const auto result = load(server, "/v1/completions", 6, 2);
  EXPECT_EQ(server.peak(), 2);
  EXPECT_GE(result.records.back().queue_s, 0.1);
  EXPECT_LT(result.records.back().ttft_s, result.records.back().queue_s);
  EXPECT_EQ(result.records.front().queue_s < 0.02, true);
}

TEST(LoadClient, failures_carry_the_servers_words) {
  TwinServer server;
  EXPECT_NE(load(server, "/refuse", 1).records[0].error.find("HTTP 400 Bad Request: {\"error\":\"bad words\"}"),
            std::string::npos);
  const auto error = load(server, "/error", 1);
  EXPECT_FALSE(error.records[0].success);
  EXPECT_NE(error.records[0].error.find("\"message\":\"x\""), std::string::npos);
  EXPECT_NE(load(server, "/empty", 1).records[0].error.find("without a token"), std::string::npos);
}

TEST(LoadClient, nobody_there_is_a_failure_and_no_hang) {
  LoadOptions options{.origin = {.host = "127.0.0.1", .port = 1}};
  options.send_at_s = {0};
  const auto result = run_load(std::vector<Sample>{{.prompt = "x", .output_tokens = 1}}, options);
  EXPECT_FALSE(result.records[0].success);
  EXPECT_FALSE(result.records[0].error.empty());
}

TEST(LoadClient, an_interrupt_returns_what_there_is) {
  TwinServer server;
  std::thread interrupter([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::raise(SIGINT);
  });
  const auto result = load(server, "/slow", 4, 2);
  interrupter.join();
  EXPECT_TRUE(result.interrupted);
  EXPECT_LT(result.duration_s, 1.5);
  for (const auto& record : result.records) EXPECT_TRUE(record.interrupted) << record.error;
}

TEST(LoadClient, bodies_are_vllms) {
  const Sample sample{.prompt = "hi", .output_tokens = 4};
  const auto completion = nlohmann::json::parse(request_body(sample, {.model = "m", .ignore_eos = true}));
  EXPECT_EQ(completion, nlohmann::json::parse(R"({"model":"m","prompt":"hi","repetition_penalty":1.0,"max_tokens":4,
    "stream":true,"stream_options":{"include_usage":true},"ignore_eos":true})"));
  const auto chat = nlohmann::json::parse(request_body(sample, {.chat = true, .model = "m"}));
  EXPECT_EQ(chat, nlohmann::json::parse(R"({"model":"m","messages":[{"role":"user","content":[{"type":"text",
    "text":"hi"}]}],"max_completion_tokens":4,"stream":true,"stream_options":{"include_usage":true}})"));
}

TEST(LoadClient, base_urls) {
  const auto origin = parse_base_url("https://[::1]:8443/prefix/").value();
  EXPECT_TRUE(origin.tls);
  EXPECT_EQ(origin.port, 8443);
  EXPECT_EQ(origin.prefix, "/prefix");
  EXPECT_EQ(parse_base_url("http://host").value().port, 80);
  EXPECT_FALSE(parse_base_url("host:80").has_value());
}

}  // namespace
}  // namespace baton::bench
