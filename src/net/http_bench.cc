// Requests per second of a tiny JSON POST and SSE chunks per second: server and client in one process, a thread each.
//
// The limit of both is system calls: a request costs a send and a receive on each side, about 0.17 us each plus the
// kernel's loopback path (some 3-5 us), plus two wake-ups when the two threads wait for each other.
#include <benchmark/benchmark.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <thread>
#include <vector>

#include "net/http_client.h"
#include "net/http_parse.h"
#include "net/http_server.h"
#include "net/sse.h"

namespace baton::net {
namespace {

constexpr int kChunks = 64;

class Loop {
 public:
  ~Loop() {
    guard_.reset();
    context_.stop();
    thread_.join();
  }
  asio::io_context& context() { return context_; }

 private:
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_ = asio::make_work_guard(context_);
  std::thread thread_{[this] { context_.run(); }};
};

Task<void> answer(HttpRequest& request, HttpResponder& responder) {
  HttpHeaders headers;
  if (request.path == "/json") {
    headers.add("Content-Type", "application/json");
    (void)co_await responder.respond({.status = 200, .headers = std::move(headers), .body = R"({"ok":true,"n":1})"});
    co_return;
  }
  headers.add("Content-Type", "text/event-stream");
  (void)co_await responder.begin_stream(200, std::move(headers));
  for (int i = 0; i < kChunks; ++i)
    (void)co_await responder.write_chunk(
        sse_event(R"({"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" token"}]})"));
  (void)co_await responder.end_stream();
}

HttpClientRequest post_to(int port, std::string target) {
  HttpClientRequest request;
  request.host = "127.0.0.1";
  request.port = port;
  request.method = "POST";
  request.target = std::move(target);
  request.headers.add("Content-Type", "application/json");
  request.body = R"({"model":"m","prompt":"Hello","max_tokens":16,"temperature":0})";
  return request;
}

Task<int> post_many(HttpClient& client, int port, int requests) {
  int failed = 0;
  for (int i = 0; i < requests; ++i) {
    auto response = co_await client.request(post_to(port, "/json"));
    failed += !response || response->status != 200;
  }
  co_return failed;
}

Task<int> stream_many(HttpClient& client, int port, int requests) {
  int failed = 0;
  for (int i = 0; i < requests; ++i) {
    auto stream = co_await client.request_stream(post_to(port, "/sse"));
    SseReader reader;
    size_t events = 0;
    while (stream) {
      auto piece = co_await (*stream)->read_piece();
      if (!piece || piece->empty()) break;
      events += reader.feed(*piece).size();
    }
    failed += events != kChunks;
  }
  co_return failed;
}

template <typename Job>
void run(benchmark::State& state, Job job, int per_connection, int items_per_request, bool one_thread) {
  const int connections = static_cast<int>(state.range(0));
  Loop server_loop, client_loop;
  auto server = serve_http(server_loop.context().get_executor(), {.one_thread = one_thread}, answer).value();
  auto client = make_http_client(client_loop.context().get_executor());
  int failed = 0;
  for (auto _ : state) {
    std::vector<std::future<int>> running;
    for (int i = 0; i < connections; ++i)
      running.push_back(
          asio::co_spawn(client_loop.context(), job(*client, server->port(), per_connection), asio::use_future));
    for (auto& each : running) failed += each.get();
  }
  if (failed > 0) state.SkipWithError("requests failed");
  state.SetItemsProcessed(state.iterations() * connections * per_connection * items_per_request);
}

void json_post(benchmark::State& state) { run(state, post_many, 200, 1, false); }
void json_post_no_strand(benchmark::State& state) { run(state, post_many, 200, 1, true); }
void sse_chunks(benchmark::State& state) { run(state, stream_many, 10, kChunks, false); }
BENCHMARK(json_post)->Arg(1)->Arg(32)->UseRealTime()->MinTime(1);
BENCHMARK(json_post_no_strand)->Arg(32)->UseRealTime()->MinTime(1);
BENCHMARK(sse_chunks)->Arg(1)->Arg(16)->UseRealTime()->MinTime(1);

constexpr std::string_view kHead =
    "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: openai/1.0\r\nAccept: application/json\r\n"
    "Content-Type: application/json\r\nAuthorization: Bearer sk-0123456789\r\nContent-Length: 2\r\n\r\n";

void parse_head(benchmark::State& state) {
  for (auto _ : state) {
    HeadScanner scanner({});
    const auto size = scanner.scan(kHead);
    auto head = parse_request_head(kHead.substr(0, *size));
    benchmark::DoNotOptimize(head);
  }
}
BENCHMARK(parse_head);

}  // namespace
}  // namespace baton::net
