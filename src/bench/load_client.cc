#include "bench/load_client.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <unordered_map>

#include "bench/progress.h"
#include "net/http_client.h"
#include "net/sse.h"

namespace baton::bench {
namespace {

namespace asio = net::asio;

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

net::HttpClientOptions client_options(const LoadOptions& options) {
  net::HttpClientOptions result;
  result.use_tls = options.origin.tls;
  result.tls.verify_peer = options.verify_tls;
  result.max_idle_per_origin = 1 << 20;
  return result;
}

// One load: everything runs on the context's thread.
class Load {
 public:
  Load(std::span<const Sample> samples, const LoadOptions& options)
      : samples_(samples),
        options_(options),
        client_(net::make_http_client(context_.get_executor(), client_options(options))),
        signals_(context_),
        ticker_(context_),
        arrivals_(context_),
        line_(options.progress) {
    result_.records.resize(samples.size());
    for (const auto& sample : samples) bodies_.push_back(request_body(sample, options.payload));
  }

  LoadResult run() {
    if (options_.stop_on_interrupt) watch_signals();
    const double cpu = thread_cpu_seconds();
    begin_ = clock_.now();
    asio::co_spawn(context_, arrive(), asio::detached);
    if (line_.visible()) asio::co_spawn(context_, draw(), asio::detached);
    context_.run();
    line_.clear();
    result_.client_cpu_s = thread_cpu_seconds() - cpu;
    if (result_.duration_s == 0) result_.duration_s = now_s();
    return std::move(result_);
  }

 private:
  struct Flight {
    net::HttpClientStream* stream = nullptr;
    std::shared_ptr<net::HttpCancellation> cancellation;
  };

  double now_s() const { return seconds_between(begin_, clock_.now()); }

  void watch_signals() {
    signals_.add(SIGINT);
    signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      std::signal(SIGINT, [](int) { std::_Exit(130); });
      stop();
    });
  }

  // Nothing more is sent; what is under way ends as interrupted.
  void stop() {
    result_.interrupted = true;
    arrivals_.cancel();
    for (const size_t index : waiting_) mark_interrupted(index);
    ended_ += std::ssize(waiting_);
    waiting_.clear();
    auto flights = std::move(flights_);
    flights_.clear();
    for (auto& [index, flight] : flights) {
      if (flight.stream != nullptr) flight.stream->close();
      flight.cancellation->cancel();
    }
    end_if_done();
  }

  void mark_interrupted(size_t index) {
    auto& record = result_.records[index];
    record.success = false;
    record.interrupted = true;
    record.error = "interrupted";
  }

  net::Task<void> arrive() {
    for (size_t i = 0; i < samples_.size() && !result_.interrupted; ++i) {
      const auto at =
          begin_ + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options_.send_at_s[i]));
      if (clock_.now() < at) {
        arrivals_.expires_at(at);
        try {
          co_await arrivals_.async_wait(asio::use_awaitable);
        } catch (const boost::system::system_error&) {
        }  // cancelled: the loop sees it
      }
      if (result_.interrupted) break;
      ++arrived_;
      result_.records[i].start_s = now_s();
      if (options_.max_concurrency > 0 && running_ >= options_.max_concurrency) {
        waiting_.push_back(i);
      } else {
        begin_request(i);
      }
    }
    for (size_t i = static_cast<size_t>(arrived_); i < samples_.size(); ++i) mark_interrupted(i);
    all_arrived_ = true;
    end_if_done();
  }

  void begin_request(size_t index) {
    ++running_;
    asio::co_spawn(context_, one_request(index), asio::detached);
  }

  net::Task<void> one_request(size_t index) {
    auto& record = result_.records[index];
    const double sent = now_s();
    record.queue_s = sent - record.start_s;
    record.start_s = sent;
    auto& flight = flights_[index];
    flight.cancellation = std::make_shared<net::HttpCancellation>();
    const auto outcome = co_await exchange(index, flight.cancellation);
    flights_.erase(index);
    if (result_.interrupted && !(outcome && record.success)) {
      mark_interrupted(index);
    } else if (!outcome) {
      record.success = false;
      record.error = outcome.error().message();
    }
    failed_ += !record.success && !record.interrupted;
    --running_;
    ++ended_;
    if (!waiting_.empty()) {
      const size_t next = waiting_.front();
      waiting_.pop_front();
      begin_request(next);
    }
    end_if_done();
  }

  net::HttpClientRequest request_of(size_t index) {
    net::HttpClientRequest request{.host = options_.origin.host,
                                   .port = options_.origin.port,
                                   .method = "POST",
                                   .target = options_.origin.prefix + options_.endpoint,
                                   .headers = options_.headers,
                                   .body = std::move(bodies_[index]),
                                   .connect_timeout = std::chrono::seconds(60),
                                   .head_timeout = std::chrono::hours(6),
                                   .idle_timeout = std::chrono::hours(6)};
    request.headers.set("Content-Type", "application/json");
    if (!options_.request_id_prefix.empty()) {
      request.headers.set("x-request-id", fmt::format("{}{}", options_.request_id_prefix, index));
    }
    return request;
  }

  // Fills the record; an error is a failed request.
  net::Task<Result<void>> exchange(size_t index, std::shared_ptr<net::HttpCancellation> cancellation) {
    auto& record = result_.records[index];
    auto request = request_of(index);
    request.cancellation = std::move(cancellation);
    BATON_CO_TRY_ASSIGN(auto stream, co_await client_->request_stream(std::move(request)));
    if (auto flight = flights_.find(index); flight != flights_.end()) flight->second.stream = stream.get();
    if (result_.interrupted) co_return fail(Code::kCancelled, "interrupted");
    if (stream->status() != 200) co_return co_await refusal(*stream);
    net::SseReader reader;
    double last = 0;
    for (bool more = true; more;) {
      auto piece = co_await stream->read_piece();
      forget_on_error(index, piece.has_value());
      if (!piece) co_return fail(piece.error());
      if (piece->empty()) break;
      const double now = now_s() - record.start_s;
      for (const auto& event : reader.feed(*piece)) {
        if (event == "[DONE]") continue;
        BATON_CO_TRY_ASSIGN(auto chunk, reader_.read(event, options_.keep_text));
        take_chunk(record, chunk, now, last);
      }
      if (reader.overflowed()) co_return fail(Code::kDataLoss, "an event of more than 16 MB");
    }
    forget_on_error(index, false);
    if (!record.success) co_return fail(Code::kDataLoss, "the answer ended without a token");
    record.latency_s = last;
    if (record.output_tokens == 0) record.output_tokens = 1 + std::ssize(record.itl_s);
    if (record.prompt_tokens == 0) record.prompt_tokens = samples_[index].prompt_tokens();
    co_return Result<void>();
  }

  // The stream is about to go: nobody may close it any more.
  void forget_on_error(size_t index, bool well) {
    if (well) return;
    if (auto flight = flights_.find(index); flight != flights_.end()) flight->second.stream = nullptr;
  }

  void take_chunk(RequestRecord& record, Chunk& chunk, double now, double& last) {
    if (chunk.has_choice) {
      if (record.success) record.itl_s.push_back(now - last);
      if (!record.success) record.ttft_s = now;
      record.success = true;
      last = now;
      ++chunks_;
      record.text += chunk.text;
    }
    if (chunk.prompt_tokens) record.prompt_tokens = *chunk.prompt_tokens;
    if (chunk.output_tokens) record.output_tokens = *chunk.output_tokens;
  }

  net::Task<Result<void>> refusal(net::HttpClientStream& stream) {
    constexpr size_t kWordsMax = 500;
    std::string words;
    for (;;) {
      auto piece = co_await stream.read_piece();
      if (!piece || piece->empty()) break;
      if (words.size() < kWordsMax) words += piece->substr(0, kWordsMax - words.size());
    }
    co_return fail(Code::kUnavailable, "HTTP {} {}: {}", stream.status(), net::http_reason(stream.status()), words);
  }

  void end_if_done() {
    if (!all_arrived_ || running_ > 0 || !waiting_.empty()) return;
    if (result_.duration_s == 0) result_.duration_s = now_s();
    signals_.cancel();
    ticker_.cancel();
    context_.stop();  // the client's idle connections would keep it running
  }

  net::Task<void> draw() {
    int64_t drawn_chunks = 0;
    double drawn_at = 0;
    for (;;) {
      ticker_.expires_after(std::chrono::milliseconds(500));
      try {
        co_await ticker_.async_wait(asio::use_awaitable);
      } catch (const boost::system::system_error&) {
        co_return;
      }
      const double now = now_s();
      line_.draw({.done = ended_,
                  .total = std::ssize(samples_),
                  .failed = failed_,
                  .running = running_,
                  .chunks = chunks_,
                  .elapsed_s = now,
                  .chunks_per_s = static_cast<double>(chunks_ - drawn_chunks) / std::max(1e-3, now - drawn_at)});
      drawn_chunks = chunks_;
      drawn_at = now;
    }
  }

  std::span<const Sample> samples_;
  const LoadOptions& options_;
  asio::io_context context_{1};
  std::unique_ptr<net::HttpClient> client_;
  asio::signal_set signals_;
  asio::steady_timer ticker_, arrivals_;
  ProgressLine line_;
  SteadyClock clock_;
  TimePoint begin_;
  std::vector<std::string> bodies_;
  ChunkReader reader_;
  LoadResult result_;
  std::deque<size_t> waiting_;
  std::unordered_map<size_t, Flight> flights_;
  int64_t arrived_ = 0, running_ = 0, ended_ = 0, failed_ = 0, chunks_ = 0;
  bool all_arrived_ = false;
};

}  // namespace

Result<Origin> parse_base_url(const std::string& url) {
  Origin origin;
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    origin.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return fail(Code::kInvalidArgument, "--base-url '{}': must begin with http:// or https://", url);
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) origin.prefix = rest.substr(slash);
  while (origin.prefix.ends_with('/')) origin.prefix.pop_back();
  auto parsed = net::parse_host_port(rest.substr(0, slash), origin.tls ? 443 : 80);
  if (!parsed) return fail(parsed.error().with_context(fmt::format("--base-url '{}'", url)));
  origin.host = parsed->host;
  origin.port = parsed->port;
  return origin;
}

LoadResult run_load(std::span<const Sample> samples, const LoadOptions& options) {
  return std::make_unique<Load>(samples, options)->run();
}

Result<net::HttpResponse> fetch(const LoadOptions& options, const std::string& target) {
  asio::io_context context(1);
  const auto client = net::make_http_client(context.get_executor(), client_options(options));
  Result<net::HttpResponse> answer = fail(Code::kInternal, "no answer");
  asio::co_spawn(
      context,
      [&]() -> net::Task<void> {
        answer = co_await client->request({.host = options.origin.host,
                                           .port = options.origin.port,
                                           .target = options.origin.prefix + target,
                                           .headers = options.headers,
                                           .head_timeout = std::chrono::seconds(10),
                                           .idle_timeout = std::chrono::seconds(10)});
        context.stop();
      },
      asio::detached);
  context.run();
  return answer;
}

}  // namespace baton::bench
