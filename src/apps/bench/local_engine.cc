#include "apps/bench/local_engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "apps/args/args_check.h"
#include "apps/args/resolve_model.h"
#include "apps/serve/rank_threads.h"
#include "apps/serve/serve_setup.h"
#include "base/log.h"
#include "bench/progress.h"
#include "weights/checkpoint.h"

namespace baton::apps {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// SIGINT asks for an early end while this lives; a second one ends the process.
class WatchInterrupt {
 public:
  WatchInterrupt() {
    interrupted = false;
    before_ = std::signal(SIGINT, [](int) {
      interrupted = true;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~WatchInterrupt() { std::signal(SIGINT, before_); }
  WatchInterrupt(const WatchInterrupt&) = delete;
  WatchInterrupt& operator=(const WatchInterrupt&) = delete;

 private:
  void (*before_)(int);
};

// What the engine's thread says of a batch.
class Batch {
 public:
  explicit Batch(std::span<const bench::Sample> samples)
      : samples_(samples), records_(samples.size()), last_s_(samples.size()) {}

  void take(size_t index, const engine::RequestOutput& output) {
    std::lock_guard lock(mutex_);
    auto& record = records_[index];
    const double now = elapsed();
    for (size_t i = 0; i < output.tokens.size(); ++i) {
      if (record.output_tokens == 0) {
        record.ttft_s = now;
      } else {
        record.itl_s.push_back(now - last_s_[index]);
      }
      ++record.output_tokens;
      last_s_[index] = now;
      ++tokens_;
    }
    if (!output.finish) return;
    record.success = *output.finish == engine::FinishReason::kStop || *output.finish == engine::FinishReason::kLength;
    record.interrupted = !record.success && interrupted;
    if (output.error) record.error = output.error->message();
    record.prompt_tokens = samples_[index].prompt_tokens();
    record.latency_s = now;
    failed_ += !record.success && !record.interrupted;
    ++done_;
    ended_.notify_all();
  }

  void refuse(size_t index, const Status& status) {
    std::lock_guard lock(mutex_);
    records_[index].error = status.message();
    ++failed_;
    ++done_;
  }

  // Returns when all have ended; `on_interrupt` runs once if SIGINT comes before.
  BatchResult wait(bool progress, const std::function<void()>& on_interrupt) {
    bench::ProgressLine line(progress);
    std::unique_lock lock(mutex_);
    bool told = false;
    double drawn_at = 0;
    int64_t drawn_tokens = 0;
    while (done_ < std::ssize(records_)) {
      ended_.wait_for(lock, std::chrono::milliseconds(100));
      if (interrupted && !told) {
        told = true;
        lock.unlock();
        on_interrupt();
        lock.lock();
      }
      const double now = elapsed();
      if (!line.visible() || now - drawn_at < 0.5) continue;
      line.draw({.done = done_,
                 .total = std::ssize(records_),
                 .failed = failed_,
                 .running = std::ssize(records_) - done_,
                 .elapsed_s = now,
                 .chunks_per_s = static_cast<double>(tokens_ - drawn_tokens) / (now - drawn_at)});
      drawn_at = now;
      drawn_tokens = tokens_;
    }
    line.clear();
    double end = 0;
    for (const auto& record : records_) end = std::max(end, record.latency_s);
    return {.seconds = end, .interrupted = told, .records = std::move(records_)};
  }

 private:
  double elapsed() const { return seconds_between(begin_, clock_.now()); }

  SteadyClock clock_;
  const TimePoint begin_ = clock_.now();
  std::span<const bench::Sample> samples_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<bench::RequestRecord> records_;
  std::vector<double> last_s_;
  int64_t done_ = 0, failed_ = 0, tokens_ = 0;
};

engine::EngineRequest request_of(const bench::Sample& sample, size_t index) {
  engine::EngineRequest request{.id = fmt::format("bench-{}", index), .prompt_ids = sample.prompt_ids};
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = static_cast<int>(std::min<int64_t>(sample.output_tokens, 1 << 30));
  return request;
}

}  // namespace

Result<std::unique_ptr<LocalEngine>> open_local_engine(std::vector<std::string> arguments, int64_t requests) {
  auto parsed = parse_arguments(arguments);
  if (parsed && !parsed->has("enable-prefix-caching")) {
    arguments.push_back("--no-enable-prefix-caching");
    parsed = parse_arguments(arguments);
  }
  if (!parsed) return fail(parsed.error());
  if (const auto report = check_arguments(*parsed); !report) return fail(report.error());
  auto local = std::make_unique<LocalEngine>();
  BATON_TRY_ASSIGN(local->setup, make_serve_setup(*parsed, false, process_environment));
  auto& setup = local->setup;
  if (setup.topology.headless || setup.topology.nnodes > 1) {
    return fail(Code::kInvalidArgument, "this bench runs in one process: --nnodes and --headless have no place here");
  }
  setup.engine.kv_transfer = {};
  setup.engine.max_waiting_requests =
      static_cast<int>(std::clamp<int64_t>(requests, setup.engine.max_waiting_requests, 100'000'000));
  BATON_TRY_ASSIGN(auto threads, plan_rank_threads(setup.topology, setup.threads, process_environment));
  BATON_TRY_ASSIGN(const auto checkpoint, weights::open_checkpoint(setup.model_path));
  BATON_TRY_ASSIGN(local->files, load_model_files(*checkpoint, setup.chat_template_file, setup.tokenizer_mode));
  setup.engine.eos_token_ids = local->files.eos_token_ids;
  local->metrics = std::make_unique<MetricRegistry>(Labels{{"model_name", "bench"}});
  const EngineSources sources{.setup = setup,
                              .threads = std::move(threads),
                              .fingerprint = "bench",
                              .metrics = *local->metrics,
                              .make_kv_host = {}};
  BATON_TRY_ASSIGN(local->served, make_served_engine(sources));
  return local;
}

Result<BatchResult> run_batch(engine::Engine& engine, std::span<const bench::Sample> samples, bool progress) {
  const WatchInterrupt watch;
  const auto batch = std::make_shared<Batch>(samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto taken = engine.submit(request_of(samples[i], i),
                                     [batch, i](engine::RequestOutput&& output) { batch->take(i, output); });
    if (!taken) batch->refuse(i, taken.error());
  }
  auto result = batch->wait(progress, [&] { engine.abort_all(); });
  for (const auto& record : result.records) {
    if (!record.success && !record.interrupted) return fail(Code::kUnavailable, "a request failed: {}", record.error);
  }
  return result;
}

}  // namespace baton::apps
