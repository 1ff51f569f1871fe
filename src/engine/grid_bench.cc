// What a grid of two ranks does to an engine's throughput, beside one rank of one thread and of two.
//   engine_grid_bench MODEL [ROUNDS [JOB ...]]      JOB: prefill:SEQUENCES:TOKENS or decode:SEQUENCES:TOKENS
//
// All engines are loaded at once and take turns, ROUNDS times a job; medians are printed. Beside the throughput: its
// ratio to one rank of two threads; the cores in use (processor time over time: what is missing from two is waiting, at
// barriers and in bubbles of the pipeline); and the processor time over that of one rank of one thread (what is above
// one is work done twice, spinning, and whatever two cores share).
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "engine/data_parallel_engine.h"
#include "engine/make_engine.h"
#include "models/model.h"

namespace baton::engine {
namespace {

struct Job {
  std::string text;
  bool prefill = false;
  int sequences = 1, tokens = 64;
};

struct Figure {
  double tokens_per_s = 0, cores = 0, cpu_s = 0;
};

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

EngineConfig config_of(const parallel::GridSizes& sizes) {
  EngineConfig config;
  const bool context = sizes.context_size() > 1;
  config.max_model_len = 2048;
  config.max_num_batched_tokens = 256;
  config.max_num_seqs = 64;
  config.block_size = context ? sizes.interleave : 16;
  config.kv_cache_bytes = int64_t{context ? 1024 : 128} << 20;
  config.prefix_caching = false;
  config.seed = 1;
  return config;
}

std::unique_ptr<Engine> load(const std::string& path, const parallel::GridSizes& sizes, int threads,
                             ComputePool& pool) {
  RankSetOptions options{
      .sizes = sizes, .stages = {0, sizes.pp}, .layer_partition = {}, .threads_per_rank = threads, .enter = {}};
  auto ranks = RankSet::load(std::move(options), [&](const models::RankSetup& rank, ComputePool& own) {
    return models::load_model(
        path, {.isa = tensor::detect_isa(), .max_positions = 2048, .quantization = {}, .rank = rank, .progress = {}},
        own);
  });
  BATON_CHECK(ranks.has_value(), "{}", ranks.error().to_string());
  EngineDependencies dependencies;
  dependencies.pool = &pool;
  auto engine = make_engine(config_of(sizes), *std::move(ranks), std::move(dependencies));
  BATON_CHECK(engine.has_value(), "{}", engine.error().to_string());
  return *std::move(engine);
}

// Counts what comes; the clock of a decode job begins when every sequence has its first token.
class Watch {
 public:
  explicit Watch(const Job& job) : job_(job), started_(static_cast<size_t>(job.sequences)) {
    if (job_.prefill) begin();
  }
  void on_output(size_t sequence, const RequestOutput& output) {
    std::lock_guard lock(mutex_);
    BATON_CHECK(!output.error, "{}", output.error->to_string());
    const auto count = static_cast<int64_t>(output.tokens.size());
    if (counting_) tokens_ += count;
    if (count > 0 && !std::exchange(started_[sequence], 1) && ++first_ == job_.sequences && !job_.prefill) begin();
    if (output.finish && ++ended_ == job_.sequences) {
      seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
      cpu_ = processor_seconds() - cpu_begin_;
      changed_.notify_all();
    }
  }
  Figure wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == job_.sequences; });
    const auto tokens = job_.prefill ? int64_t{job_.sequences} * job_.tokens : tokens_;
    const double count = static_cast<double>(tokens);
    return {.tokens_per_s = count / seconds_, .cores = cpu_ / seconds_, .cpu_s = cpu_ / count};
  }

 private:
  void begin() {
    counting_ = true;
    begin_ = std::chrono::steady_clock::now();
    cpu_begin_ = processor_seconds();
  }

  const Job job_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> started_;
  std::chrono::steady_clock::time_point begin_;
  bool counting_ = false;
  int64_t tokens_ = 0;
  int first_ = 0, ended_ = 0;
  double cpu_begin_ = 0, cpu_ = 0, seconds_ = 0;
};

Figure measure(Engine& engine, const Job& job, int round) {
  const auto watch = std::make_shared<Watch>(job);
  for (int s = 0; s < job.sequences; ++s) {
    EngineRequest request;
    request.id = fmt::format("{}-{}-{}", job.text, round, s);
    const int prompt = job.prefill ? job.tokens : 8;
    for (int t = 0; t < prompt; ++t) request.prompt_ids.push_back(3 + (t * 7 + s * 13 + round) % 250);
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = job.prefill ? 1 : job.tokens;
    const auto submitted = engine.submit(
        std::move(request), [watch, s](RequestOutput&& output) { watch->on_output(static_cast<size_t>(s), output); });
    BATON_CHECK(submitted.has_value(), "{}", submitted.error().to_string());
  }
  return watch->wait();
}

struct Candidate {
  std::string name;
  std::unique_ptr<Engine> engine;
};

double median(std::vector<Figure>& all, double Figure::* which) {
  std::ranges::sort(all, {}, which);
  return all[all.size() / 2].*which;
}

void compare(std::vector<Candidate>& candidates, const Job& job, int rounds) {
  std::vector<std::vector<Figure>> figures(candidates.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t c = 0; c < candidates.size(); ++c) {
      const auto figure = measure(*candidates[c].engine, job, round);
      if (round >= 0) figures[c].push_back(figure);  // the first is for warming up
    }
  }
  const double two_threads = median(figures[1], &Figure::tokens_per_s), one_cpu = median(figures[0], &Figure::cpu_s);
  for (size_t c = 0; c < candidates.size(); ++c) {
    const double speed = median(figures[c], &Figure::tokens_per_s);
    fmt::print("{:<18} {:<18} {:>9.1f} tokens/s {:>6.2f} of 2 threads {:>6.2f} cores {:>6.2f} times the work\n",
               job.text, candidates[c].name, speed, speed / two_threads, median(figures[c], &Figure::cores),
               median(figures[c], &Figure::cpu_s) / one_cpu);
  }
  std::fflush(stdout);
}

Job parse(const std::string& text) {
  Job job{.text = text, .prefill = text.starts_with("prefill:")};
  BATON_CHECK(std::sscanf(text.c_str(), "%*[a-z]:%d:%d", &job.sequences, &job.tokens) == 2, "not a job: {}", text);
  return job;
}

int run(const std::string& path, int rounds, const std::vector<Job>& jobs) {
  ComputePool unused({.threads = 1});
  std::vector<Candidate> candidates;
  const auto add = [&](const char* name, const parallel::GridSizes& sizes, int threads) {
    candidates.push_back({name, load(path, sizes, threads, unused)});
  };
  add("1 rank 1 thread", {}, 1);
  add("1 rank 2 threads", {}, 2);
  add("tp2", {.tp = 2}, 1);
  add("pp2", {.pp = 2}, 1);
  add("pcp2", {.pcp = 2}, 1);
  std::vector<std::unique_ptr<Engine>> replicas;
  for (int i = 0; i < 2; ++i) replicas.push_back(load(path, {}, 1, unused));
  candidates.push_back({"dp2", std::make_unique<DataParallelEngine>(std::move(replicas), 0)});
  for (const auto& job : jobs) compare(candidates, job, rounds);
  return 0;
}

}  // namespace
}  // namespace baton::engine

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::vector<baton::engine::Job> jobs;
  for (int i = 3; i < argc; ++i) jobs.push_back(baton::engine::parse(argv[i]));
  if (jobs.empty()) {
    for (const char* job : {"prefill:1:256", "prefill:8:256", "decode:1:32", "decode:8:32", "decode:32:16"}) {
      jobs.push_back(baton::engine::parse(job));
    }
  }
  return baton::engine::run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 3, jobs);
}
