// `baton bench latency`: how long one batch takes in an engine of this process.
#include <cstdio>
#include <random>

#include "apps/bench/bench_command.h"
#include "apps/bench/bench_flags.h"
#include "apps/bench/bench_output.h"
#include "apps/bench/local_engine.h"
#include "base/log.h"
#include "bench/machine_limits.h"
#include "bench/random_prompt.h"
#include "bench/report.h"

namespace baton::apps {
namespace {

constexpr double kPercents[] = {10, 25, 50, 75, 90, 99};

struct LatencyFlags {
  int64_t input_len = 32, output_len = 128, batch_size = 8, warmups = 10, iterations = 30;
  std::string output_json;
  bool skip_limits = false;
  std::vector<std::string> engine;
};

std::vector<bench::Sample> random_batch(const LatencyFlags& flags, const text::Tokenizer& tokenizer, uint64_t seed) {
  bench::RandomPrompts prompts(tokenizer, seed);
  std::vector<bench::Sample> samples(static_cast<size_t>(flags.batch_size));
  for (auto& sample : samples) {
    sample.prompt_ids = prompts.draw(flags.input_len);
    sample.output_tokens = flags.output_len;
  }
  return samples;
}

Result<void> run(const LatencyFlags& flags) {
  bench::MachineLimits limits;
  if (!flags.skip_limits) {
    limits = bench::measure_limits();
    fmt::print("{}", bench::limits_text(limits));
  }
  BATON_TRY_ASSIGN(const auto local, open_local_engine(flags.engine, flags.batch_size));
  std::vector<double> latencies;
  for (int64_t i = 0; i < flags.warmups + flags.iterations; ++i) {
    const auto samples = random_batch(flags, *local->files.tokenizer, static_cast<uint64_t>(i));
    BATON_TRY_ASSIGN(const auto batch, run_batch(local->engine(), samples, false));
    if (batch.interrupted) break;
    if (i >= flags.warmups) latencies.push_back(batch.seconds);
  }
  local->engine().drain(std::chrono::seconds(0));
  if (latencies.empty()) return fail(Code::kCancelled, "interrupted before the first measured batch");
  const auto described = bench::describe(latencies, kPercents);
  fmt::print("Avg latency: {} seconds\n", described.mean);
  nlohmann::ordered_json percentiles;
  for (size_t i = 0; i < std::size(kPercents); ++i) {
    fmt::print("{}% percentile latency: {} seconds\n", kPercents[i], described.percentiles[i]);
    percentiles[bench::percent_word(kPercents[i])] = described.percentiles[i];
  }
  if (flags.output_json.empty()) return {};
  nlohmann::ordered_json json{{"avg_latency", described.mean}, {"latencies", latencies}, {"percentiles", percentiles}};
  if (!flags.skip_limits) json["machine_limits"] = bench::limits_json(limits);
  return write_report(flags.output_json, json);
}

}  // namespace

int bench_latency_command(int argc, char** argv) {
  LatencyFlags flags;
  CLI::App app{
      "Time one batch of random prompts from start to end. All further options are those of `baton serve`: --model, "
      "--threads, ...",
      "baton bench latency"};
  app.allow_extras();
  const auto add = [&](const char* name, auto& value, const char* help, int64_t least) {
    app.add_option(name, value, help)->check(CLI::Range(least, int64_t{10'000'000}))->capture_default_str();
  };
  add("--input-len", flags.input_len, "Tokens of each prompt", 1);
  add("--output-len", flags.output_len, "Tokens of each answer", 1);
  add("--batch-size", flags.batch_size, "Requests at a time", 1);
  add("--num-iters-warmup", flags.warmups, "Batches before the measurement", 0);
  add("--num-iters", flags.iterations, "Batches measured", 1);
  app.add_option("--output-json", flags.output_json, "File for the result");
  app.add_flag("--skip-limits", flags.skip_limits, "Don't measure the machine first");
  if (const auto status = parse_bench_line(app, argc, argv, true)) return *status;
  flags.engine = app.remaining();
  set_log_level(LogLevel::kWarning);
  const auto outcome = run(flags);
  if (outcome) return 0;
  fmt::print(stderr, "baton bench latency: {}\n", outcome.error().message());
  return outcome.error().code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace baton::apps
