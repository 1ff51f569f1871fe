#include "apps/ask_command.h"

#include <CLI/CLI.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/sse.h"

namespace baton::apps {
namespace {

namespace asio = net::asio;
using Json = nlohmann::ordered_json;

struct AskOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string decode_url;
  std::string question;
  std::string api_key;
  int max_tokens = 256;
  double temperature = 0;
  bool require_hand_off = false;
};

struct Origin {
  std::string host;
  int port = 0;
};

struct Figures {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::optional<double> first_token_s;
  double last_token_s = 0;
};

// What a decode engine says of hand-offs, summed since its start.
struct TransferTotals {
  double bytes = 0;
  double seconds = 0;
  double transfers = 0;
};

Result<Origin> parse_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return fail(Code::kInvalidArgument, "{}: only http:// addresses are understood", url);
  std::string_view rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  BATON_TRY_ASSIGN(auto parsed, net::parse_host_port(rest, 80));
  return Origin{std::move(parsed.host), parsed.port};
}

// The value of a series without labels that matter, or 0.
double metric_value(std::string_view text, std::string_view name) {
  double sum = 0;
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const bool line_start = at == 0 || text[at - 1] == '\n';
    const size_t after = at + name.size();
    if (!line_start || after >= text.size() || (text[after] != '{' && text[after] != ' ')) continue;
    const size_t line_end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, line_end - at);
    sum += std::atof(std::string(line.substr(line.rfind(' ') + 1)).c_str());
  }
  return sum;
}

net::Task<Result<TransferTotals>> read_transfers(net::HttpClient& client, const Origin& origin) {
  BATON_CO_TRY_ASSIGN(const auto response,
                      co_await client.request({.host = origin.host, .port = origin.port, .target = "/metrics"}));
  if (response.status != 200) co_return fail(Code::kUnavailable, "/metrics answered {}", response.status);
  co_return TransferTotals{.bytes = metric_value(response.body, "vllm:mooncake_bytes_transferred_sum"),
                           .seconds = metric_value(response.body, "vllm:mooncake_xfer_time_seconds_sum"),
                           .transfers = metric_value(response.body, "vllm:mooncake_xfer_time_seconds_count")};
}

// Prints the event's text; false at the end of the stream. An error event is an error.
Result<bool> take_event(const std::string& event, double now_s, Figures& figures) {
  if (event == "[DONE]") return false;
  const Json chunk = Json::parse(event, nullptr, false);
  if (chunk.is_discarded()) return fail(Code::kDataLoss, "the server sent an event that is not JSON: {}", event);
  if (chunk.contains("error")) return fail(Code::kUnavailable, "{}", chunk["error"].dump());
  if (chunk.contains("usage") && chunk["usage"].is_object()) {
    figures.prompt_tokens = chunk["usage"].value("prompt_tokens", 0);
    figures.output_tokens = chunk["usage"].value("completion_tokens", 0);
  }
  if (!chunk.contains("choices") || chunk["choices"].empty()) return true;
  if (!figures.first_token_s) figures.first_token_s = now_s;
  figures.last_token_s = now_s;
  const auto& delta = chunk["choices"][0]["delta"];
  if (delta.contains("content") && delta["content"].is_string()) {
    std::fputs(delta["content"].get<std::string>().c_str(), stdout);
    std::fflush(stdout);
  }
  return true;
}

net::Task<Result<Figures>> stream_answer(net::HttpClient& client, const Origin& origin, const AskOptions& options) {
  const Json body{{"messages", Json::array({{{"role", "user"}, {"content", options.question}}})},
                  {"max_tokens", options.max_tokens},
                  {"temperature", options.temperature},
                  {"stream", true},
                  {"stream_options", {{"include_usage", true}}}};
  net::HttpClientRequest request{.host = origin.host,
                                 .port = origin.port,
                                 .method = "POST",
                                 .target = "/v1/chat/completions",
                                 .body = body.dump()};
  request.headers.set("Content-Type", "application/json");
  if (!options.api_key.empty()) request.headers.set("Authorization", "Bearer " + options.api_key);

  const SteadyClock clock;
  const TimePoint begin = clock.now();
  BATON_CO_TRY_ASSIGN(auto stream, co_await client.request_stream(std::move(request)));
  Figures figures;
  net::SseReader reader;
  std::string refusal;
  for (;;) {
    BATON_CO_TRY_ASSIGN(const std::string piece, co_await stream->read_piece());
    if (stream->status() != 200) {
      if (piece.empty()) co_return fail(Code::kUnavailable, "the server answered {}: {}", stream->status(), refusal);
      refusal += piece;
      continue;
    }
    if (piece.empty()) co_return fail(Code::kDataLoss, "the answer ended without [DONE]");
    for (const auto& event : reader.feed(piece)) {
      BATON_CO_TRY_ASSIGN(const bool more, take_event(event, seconds_between(begin, clock.now()), figures));
      if (!more) co_return figures;
    }
  }
}

void print_row(const char* name, const std::string& value, const char* source) {
  fmt::print("  {:<22}{:>12}   {}\n", name, value, source);
}

void print_table(const Figures& figures, const std::optional<TransferTotals>& transfers) {
  const double ttft = figures.first_token_s.value_or(0);
  const int64_t later = figures.output_tokens - 1;
  const double tpot = later > 0 ? (figures.last_token_s - ttft) / static_cast<double>(later) : 0;
  fmt::print("\n\n  {:<22}{:>12}   {}\n", "figure", "value", "from");
  print_row("prompt tokens", std::to_string(figures.prompt_tokens), "usage in the answer");
  print_row("output tokens", std::to_string(figures.output_tokens), "usage in the answer");
  print_row("TTFT", fmt::format("{:.1f} ms", ttft * 1e3), "this client: request sent to first token");
  print_row("TPOT", fmt::format("{:.2f} ms", tpot * 1e3), "this client: later tokens' time, per token");
  print_row("tokens/s", fmt::format("{:.1f}", tpot > 0 ? 1 / tpot : 0), "1 / TPOT");
  if (!transfers) return;
  if (transfers->transfers == 0) {
    print_row("KV handed over", "0 MB", "none: the decode engine had the prompt in its prefix cache, or computed it");
    return;
  }
  print_row("KV handed over", fmt::format("{:.2f} MB", transfers->bytes / 1e6),
            "decode engine's /metrics: mooncake_bytes_transferred");
  print_row("hand-off time", fmt::format("{:.2f} ms", transfers->seconds * 1e3),
            "decode engine's /metrics: mooncake_xfer_time_seconds");
}

net::Task<Result<void>> ask(net::HttpClient& client, const AskOptions& options) {
  BATON_CO_TRY_ASSIGN(const Origin origin, parse_url(options.url));
  std::optional<Origin> decode;
  std::optional<TransferTotals> before;
  if (!options.decode_url.empty()) {
    BATON_CO_TRY_ASSIGN(decode, parse_url(options.decode_url));
    BATON_CO_TRY_ASSIGN(before, co_await read_transfers(client, *decode));
  }
  fmt::print("> {}\n\n", options.question);
  BATON_CO_TRY_ASSIGN(const Figures figures, co_await stream_answer(client, origin, options));
  std::optional<TransferTotals> during;
  if (decode) {
    BATON_CO_TRY_ASSIGN(const auto after, co_await read_transfers(client, *decode));
    during = TransferTotals{.bytes = after.bytes - before->bytes,
                            .seconds = after.seconds - before->seconds,
                            .transfers = after.transfers - before->transfers};
    if (during->transfers == 0 && options.require_hand_off) {
      co_return fail(Code::kFailedPrecondition, "the decode engine took no KV over for this question");
    }
  }
  print_table(figures, during);
  co_return Result<void>();
}

}  // namespace

int ask_command(int argc, char** argv) {
  AskOptions options;
  CLI::App app{"Ask a server one question, stream the answer, show what it took.", "baton ask"};
  app.add_option("question", options.question, "The question")->required();
  app.add_option("--url", options.url, "Proxy or engine")->capture_default_str();
  app.add_option("--decode-url", options.decode_url, "Decode engine whose /metrics tell of the hand-off");
  app.add_flag("--require-hand-off", options.require_hand_off, "Fail unless the decode engine took KV over");
  app.add_option("--api-key", options.api_key, "Sent as a bearer token");
  app.add_option("--max-tokens", options.max_tokens, "Longest answer")->capture_default_str();
  app.add_option("--temperature", options.temperature, "0 is greedy")->capture_default_str();
  std::vector<std::string> arguments(argv, argv + argc);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = app.exit(error) == 0;
    return asked_for_help ? 0 : 2;
  }
  asio::io_context context;
  const auto client = net::make_http_client(context.get_executor());
  Result<void> outcome;
  asio::co_spawn(
      context,
      [&]() -> net::Task<void> {
        outcome = co_await ask(*client, options);
        context.stop();  // the client's idle connections would keep it running
      },
      asio::detached);
  context.run();
  if (!outcome) {
    fmt::print(stderr, "baton ask: {}\n", outcome.error().message());
    return 1;
  }
  return 0;
}

}  // namespace baton::apps
