// `baton bench throughput`: a whole data set through an engine of this process, all requests at once.
#include <cstdio>

#include "apps/bench/bench_command.h"
#include "apps/bench/bench_flags.h"
#include "apps/bench/bench_output.h"
#include "apps/bench/bench_tokenizer.h"
#include "apps/bench/local_engine.h"
#include "base/log.h"
#include "bench/dataset.h"
#include "bench/machine_limits.h"

namespace baton::apps {
namespace {

struct ThroughputFlags {
  DatasetFlags dataset;
  std::string output_json;
  bool skip_limits = false, no_progress = false;
  std::vector<std::string> engine;
};

Result<int> run(const ThroughputFlags& flags) {
  BATON_TRY_ASSIGN(const auto options, dataset_options(flags.dataset));
  bench::MachineLimits limits;
  if (!flags.skip_limits) {
    limits = bench::measure_limits();
    fmt::print("{}", bench::limits_text(limits));
  }
  BATON_TRY_ASSIGN(const auto local, open_local_engine(flags.engine, options.count));
  BATON_TRY_ASSIGN(const auto samples, bench::make_dataset(options, *local->files.tokenizer));
  BATON_TRY_ASSIGN(const auto batch, run_batch(local->engine(), samples, !flags.no_progress));
  local->engine().drain(std::chrono::seconds(0));
  int64_t done = 0, input = 0, output = 0;
  for (const auto& record : batch.records) {
    if (!record.success) continue;
    ++done;
    input += record.prompt_tokens;
    output += record.output_tokens;
  }
  const auto rate = [&](int64_t count) { return batch.seconds > 0 ? static_cast<double>(count) / batch.seconds : 0; };
  if (batch.interrupted) fmt::print("Interrupted: {} of {} requests had ended\n", done, batch.records.size());
  fmt::print("Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n", rate(done),
             rate(input + output), rate(output));
  fmt::print("Total num prompt tokens:  {}\nTotal num output tokens:  {}\n", input, output);
  if (!flags.output_json.empty()) {
    nlohmann::ordered_json json{{"elapsed_time", batch.seconds},
                                {"num_requests", done},
                                {"total_num_tokens", input + output},
                                {"requests_per_second", rate(done)},
                                {"tokens_per_second", rate(input + output)},
                                {"output_tokens_per_second", rate(output)}};
    if (!flags.skip_limits) json["machine_limits"] = bench::limits_json(limits);
    BATON_TRY(write_report(flags.output_json, json));
  }
  return batch.interrupted ? 130 : 0;
}

}  // namespace

int bench_throughput_command(int argc, char** argv) {
  ThroughputFlags flags;
  CLI::App app{
      "Run a data set through an engine of this process. All further options are those of `baton serve`: --model, "
      "--threads, ...",
      "baton bench throughput"};
  app.allow_extras();
  add_dataset_flags(app, flags.dataset);
  app.add_option("--output-json", flags.output_json, "File for the result");
  app.add_flag("--disable-tqdm", flags.no_progress, "No progress line");
  app.add_flag("--skip-limits", flags.skip_limits, "Don't measure the machine first");
  if (const auto status = parse_bench_line(app, argc, argv, true)) return *status;
  flags.engine = app.remaining();
  set_log_level(LogLevel::kWarning);
  const auto status = run(flags);
  if (status) return *status;
  fmt::print(stderr, "baton bench throughput: {}\n", status.error().message());
  return status.error().code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace baton::apps
