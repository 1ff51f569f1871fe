// Measures proxies: engines that cost nothing, and clients that ask as fast as they are answered.
//
//   proxy_load engines --prefill 8101,8102 --decode 8201 [--chunks 64] [--per-write 1]     until SIGTERM
//   proxy_load load --port 8000 [--connections 1] [--seconds 2] [--prompt-bytes 64] [--stream] [--pid PROXY]
//
// `load` prints one line of JSON: rates, latencies in microseconds, the CPU time of the process --pid per request and
// chunk (user and system, of all its threads and children). Every answer is checked: a short one counts as failed.
// One thread each. An engine's share of a request is about 15 us, that of the network's two ends included.
#include <fmt/format.h>

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/sse.h"

namespace baton::bench {
namespace {

namespace asio = net::asio;

struct EngineOptions {
  std::vector<int> prefill, decode;
  int chunks = 64;      // of each streamed answer
  int per_write = 1;    // chunks that leave together
  int prompt_ids = 16;  // said by the decode engines when asked for token ids
};

// As `"name":true` and `"name": true`.
bool says(std::string_view body, std::string_view name) {
  const auto at = body.find(name);
  if (at == std::string_view::npos) return false;
  const auto rest = body.substr(at + name.size(), 8);
  return rest.find("true") != std::string_view::npos;
}

std::string chunk_of(bool chat, bool ids, int index, int prompt_ids) {
  std::string choice = chat ? R"({"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null)"
                            : R"({"index":0,"text":" token","logprobs":null,"finish_reason":null,"stop_reason":null)";
  if (ids) {
    choice += fmt::format(R"(,"token_ids":[{}])", 1000 + index);
    if (index == 0) {
      choice += R"(,"prompt_token_ids":[1)";
      for (int i = 1; i < prompt_ids; ++i) choice += fmt::format(",{}", 100 + i);
      choice += "]";
    }
  }
  return net::sse_event(
      fmt::format(R"({{"id":"cmpl-0123456789abcdef0123456789abcdef","object":"{}","created":1764550000,)"
                  R"("model":"SmolLM2-135M-Instruct","choices":[{}}}]}})",
                  chat ? "chat.completion.chunk" : "text_completion", choice));
}

class Engines {
 public:
  Engines(asio::io_context& context, EngineOptions options) : context_(context), options_(std::move(options)) {}

  Result<void> listen() {
    for (const bool prefill : {true, false})
      for (const int port : prefill ? options_.prefill : options_.decode) BATON_TRY(listen(port, prefill));
    return {};
  }

 private:
  Result<void> listen(int port, bool prefill) {
    net::HttpServerOptions http{.listen = {.port = port}, .one_thread = true};
    BATON_TRY_ASSIGN(auto server, net::serve_http(context_.get_executor(), http,
                                                  [this, prefill](net::HttpRequest& request,
                                                                  net::HttpResponder& responder) -> net::Task<void> {
                                                    co_await answer(prefill, request, responder);
                                                  }));
    servers_.push_back(std::move(server));
    return {};
  }

  static net::HttpResponse json(std::string body) {
    net::HttpResponse response{.status = 200, .headers = {}, .body = std::move(body)};
    response.headers.add("Content-Type", "application/json");
    return response;
  }

  net::Task<void> answer(bool prefill, net::HttpRequest& request, net::HttpResponder& responder) {
    if (request.method != "POST" || !request.path.ends_with("completions")) {
      (void)co_await responder.respond(json(R"({"object":"list","data":[{"id":"m","object":"model"}]})"));
      co_return;
    }
    const bool chat = request.path.ends_with("chat/completions");
    // What was asked stands in the small fields at either end of the body.
    const std::string_view body = request.body;
    const std::string ends = body.size() < 4096
                                 ? std::string(body)
                                 : std::string(body.substr(0, 2048)) + std::string(body.substr(body.size() - 2048));
    const bool streams = says(ends, "\"stream\"");
    if (prefill && !streams) {
      (void)co_await responder.respond(json(
          R"({"id":"cmpl-0","object":"text_completion","created":1764550000,"model":"m","choices":[{"index":0,"text":" t",)"
          R"("logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":16,"completion_tokens":1,)"
          R"("total_tokens":17},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,)"
          R"("remote_engine_id":"e0","remote_block_ids":[[1,2,3,4]],"remote_host":"127.0.0.1","remote_port":7000}})"));
      co_return;
    }
    if (!streams) {
      (void)co_await responder.respond(json(
          R"({"id":"cmpl-0","object":"text_completion","created":1764550000,"model":"m","choices":[{"index":0,"text":)"
          R"(" a whole answer","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":16,)"
          R"("completion_tokens":8,"total_tokens":24}})"));
      co_return;
    }
    co_await stream(prefill, chat, says(ends, "\"return_token_ids\""), responder);
  }

  net::Task<void> stream(bool prefill, bool chat, bool ids, net::HttpResponder& responder) {
    net::HttpHeaders headers;
    headers.add("Content-Type", "text/event-stream; charset=utf-8");
    if (!co_await responder.begin_stream(200, std::move(headers))) co_return;
    const int count = prefill ? 1 : options_.chunks;
    const auto& chunks = chunks_for(chat, ids);
    std::string together;
    for (int i = 0; i < count; ++i) {
      together += chunks[static_cast<size_t>(i)];
      if ((i + 1) % options_.per_write != 0 && i + 1 != count) continue;
      if (!co_await responder.write_chunk(together)) co_return;
      together.clear();
    }
    static const std::string kEnd =
        net::sse_event(R"({"id":"cmpl-0","object":"text_completion","created":1764550000,"model":"m","choices":[],)"
                       R"("usage":{"prompt_tokens":16,"completion_tokens":64,"total_tokens":80}})") +
        net::sse_event("[DONE]");
    if (!co_await responder.write_chunk(kEnd)) co_return;
    (void)co_await responder.end_stream();
  }

  const std::vector<std::string>& chunks_for(bool chat, bool ids) {
    auto& chunks = chunks_[chat][ids];
    for (int i = static_cast<int>(chunks.size()); i < options_.chunks; ++i)
      chunks.push_back(chunk_of(chat, ids, i, options_.prompt_ids));
    return chunks;
  }

  asio::io_context& context_;
  EngineOptions options_;
  std::vector<std::string> chunks_[2][2];
  std::vector<std::unique_ptr<net::HttpServer>> servers_;
};

// ---- load ----

struct LoadOptions {
  int port = 8000, connections = 1, prompt_bytes = 64, pid = 0;
  double seconds = 2, warm_seconds = 0.3;
  bool stream = false, chat = false;
  int chunks = 64;
};

// Clock ticks of a process and of its living descendants.
double cpu_seconds(int pid) {
  if (pid <= 0) return 0;
  double ticks = 0;
  if (std::ifstream stat(fmt::format("/proc/{}/stat", pid)); stat) {
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    const auto after = text.rfind(')');
    if (after == std::string::npos) return 0;
    char state;
    long skipped, user = 0, system = 0;
    const char* at = text.c_str() + after + 1;
    if (std::sscanf(at, " %c %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", &state, &skipped, &skipped, &skipped,
                    &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &user, &system) == 13)
      ticks = static_cast<double>(user + system);
  }
  double sum = ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  if (std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid)); children)
    for (int child; children >> child;) sum += cpu_seconds(child);
  return sum;
}

struct Tally {
  std::vector<double> whole_us, first_us;
  int64_t requests = 0, chunks = 0, failed = 0;
};

class Load {
 public:
  explicit Load(LoadOptions options) : options_(options), client_(net::make_http_client(context_.get_executor())) {
    const std::string prompt(static_cast<size_t>(options_.prompt_bytes), 'a');
    body_ = options_.chat ? fmt::format(R"({{"model":"m","messages":[{{"role":"user","content":"{}"}}],)", prompt)
                          : fmt::format(R"({{"model":"m","prompt":"{}",)", prompt);
    body_ += fmt::format(R"("max_tokens":{},"temperature":0,"stream":{}}})", options_.chunks, options_.stream);
  }

  int run() {
    const TimePoint begin = clock_.now() + seconds(options_.warm_seconds);
    const TimePoint end = begin + seconds(options_.seconds);
    for (int i = 0; i < options_.connections; ++i) asio::co_spawn(context_, ask(begin, end), asio::detached);
    double cpu_begin = 0, cpu_end = 0;
    asio::steady_timer at_begin(context_, begin), at_end(context_, end);
    at_begin.async_wait([&](auto) { cpu_begin = cpu_seconds(options_.pid); });
    at_end.async_wait([&](auto) { cpu_end = cpu_seconds(options_.pid); });
    context_.run();
    print(cpu_end - cpu_begin);
    return tally_.failed > 0;
  }

 private:
  static Duration seconds(double s) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s)); }

  net::Task<void> ask(TimePoint begin, TimePoint end) {
    ++asking_;
    while (clock_.now() < end) {
      const TimePoint sent = clock_.now();
      TimePoint first = sent;
      const int64_t chunks = co_await once(first);
      const TimePoint done = clock_.now();
      if (done < begin || done > end) continue;
      ++tally_.requests;
      tally_.chunks += std::max<int64_t>(0, chunks);
      tally_.failed += chunks < (options_.stream ? options_.chunks : 0);
      tally_.whole_us.push_back(seconds_between(sent, done) * 1e6);
      tally_.first_us.push_back(seconds_between(sent, first) * 1e6);
    }
    // Idle connections keep timers of their own: the context would run on for them.
    if (--asking_ == 0) over_.expires_after(std::chrono::milliseconds(50));
    if (asking_ == 0) over_.async_wait([this](auto) { context_.stop(); });
  }

  // Events of the answer; -1: it was no good one.
  net::Task<int64_t> once(TimePoint& first) {
    net::HttpClientRequest request;
    request.host = "127.0.0.1";
    request.port = options_.port;
    request.method = "POST";
    request.target = options_.chat ? "/v1/chat/completions" : "/v1/completions";
    request.headers.add("Content-Type", "application/json");
    request.body = body_;
    auto stream = co_await client_->request_stream(std::move(request));
    if (!stream || (*stream)->status() != 200) co_return -1;
    int64_t events = 0;
    bool done = false;
    char before = 0;
    for (;;) {
      const auto piece = co_await (*stream)->read_piece();
      if (!piece) co_return -1;
      if (piece->empty()) break;
      if (events == 0) first = clock_.now();
      for (const char c : *piece) {
        events += c == '\n' && before == '\n';
        before = c;
      }
      done |= piece->find(options_.stream ? "[DONE]" : "whole answer") != std::string::npos;
    }
    co_return done ? events : -1;
  }

  static double at(std::vector<double>& sorted, double share) {
    if (sorted.empty()) return 0;
    return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
  }

  void print(double cpu) {
    std::ranges::sort(tally_.whole_us);
    std::ranges::sort(tally_.first_us);
    const auto rate = [&](int64_t count) { return static_cast<double>(count) / options_.seconds; };
    const auto each = [&](int64_t count) { return count > 0 ? cpu * 1e6 / static_cast<double>(count) : 0; };
    fmt::print(
        R"({{"requests":{},"failed":{},"requests_per_s":{:.1f},"chunks_per_s":{:.1f},"p50_us":{:.1f},"p99_us":{:.1f},)"
        R"("first_p50_us":{:.1f},"first_p99_us":{:.1f},"cpu_s":{:.3f},"cpu_us_per_request":{:.2f},"cpu_us_per_chunk":{:.3f}}})"
        "\n",
        tally_.requests, tally_.failed, rate(tally_.requests), rate(tally_.chunks), at(tally_.whole_us, 0.5),
        at(tally_.whole_us, 0.99), at(tally_.first_us, 0.5), at(tally_.first_us, 0.99), cpu, each(tally_.requests),
        each(tally_.chunks));
  }

  const LoadOptions options_;
  SteadyClock clock_;
  asio::io_context context_{1};
  std::unique_ptr<net::HttpClient> client_;
  std::string body_;
  asio::steady_timer over_{context_};
  int asking_ = 0;
  Tally tally_;
};

int run_engines(const EngineOptions& options) {
  asio::io_context context(1);
  Engines engines(context, options);
  if (auto listening = engines.listen(); !listening) {
    fmt::print(stderr, "proxy_load: {}\n", listening.error().message());
    return 1;
  }
  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](auto, int) { context.stop(); });
  context.run();
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  using namespace baton::bench;
  CLI::App app("Measures proxies with engines that cost nothing.", "proxy_load");
  app.require_subcommand(1);
  EngineOptions engine;
  auto* engines = app.add_subcommand("engines", "Fake engines, until SIGTERM");
  engines->add_option("--prefill", engine.prefill)->delimiter(',');
  engines->add_option("--decode", engine.decode)->delimiter(',');
  engines->add_option("--chunks", engine.chunks)->check(CLI::Range(1, 1 << 20));
  engines->add_option("--per-write", engine.per_write)->check(CLI::Range(1, 1 << 20));
  engines->add_option("--prompt-ids", engine.prompt_ids)->check(CLI::Range(1, 1 << 20));
  LoadOptions with;
  auto* load = app.add_subcommand("load", "Clients of a proxy or an engine");
  load->add_option("--port", with.port)->required();
  load->add_option("--connections", with.connections)->check(CLI::Range(1, 4096));
  load->add_option("--prompt-bytes", with.prompt_bytes)->check(CLI::Range(1, 64 << 20));
  load->add_option("--seconds", with.seconds)->check(CLI::Range(0.1, 100.0));
  load->add_option("--chunks", with.chunks)->check(CLI::Range(1, 1 << 20));
  load->add_option("--pid", with.pid);
  load->add_flag("--stream", with.stream);
  load->add_flag("--chat", with.chat);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return *engines ? run_engines(engine) : Load(with).run();
}
