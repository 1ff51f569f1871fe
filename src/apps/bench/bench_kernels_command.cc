// `baton bench kernels`: every kernel of this machine's instruction set, beside the machine's limits.
#include <cstdio>

#include "apps/bench/bench_command.h"
#include "apps/bench/bench_flags.h"
#include "apps/bench/bench_output.h"
#include "kernels/kernel_bench.h"

namespace baton::apps {
namespace {

constexpr int64_t kWeightsMax = 65536;  // outputs, features

struct KernelFlags {
  kernels::KernelBenchOptions options;
  std::string isa, output_json;
  bool skip_limits = false;
};

void print_line(const kernels::KernelLine& line) {
  fmt::print("{:<56}", line.name);
  if (!line.failure.empty()) {
    fmt::print(" {}\n", line.failure);
    return;
  }
  if (line.relative_error > 0 || line.seconds == 0) {
    fmt::print(" {:.2e} relative error\n", line.relative_error);
    return;
  }
  fmt::print(" {:>11.1f} us", line.seconds * 1e6);
  const auto share = [](double percent) { return percent > 0 ? fmt::format(" {:>4.0f} %", percent) : ""; };
  if (line.gbs > 0) fmt::print("   {:>7.2f} GB/s{}", line.gbs, share(line.gbs_percent));
  if (line.gops > 0) fmt::print("   {:>7.1f} GOP/s{}", line.gops, share(line.gops_percent));
  fmt::print("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json line_json(const kernels::KernelLine& line) {
  nlohmann::ordered_json json{{"section", line.section}, {"name", line.name}};
  if (!line.failure.empty()) {
    json["failure"] = line.failure;
  } else if (line.seconds == 0) {
    json["relative_error"] = line.relative_error;
  } else {
    json["seconds"] = line.seconds;
    if (line.gbs > 0) json["gbs"] = line.gbs;
    if (line.gops > 0) json["gops"] = line.gops;
  }
  return json;
}

Result<void> check(KernelFlags& flags) {
  auto& options = flags.options;
  for (const auto& [flag, value] : {std::pair("--outputs", options.outputs), {"--features", options.features}}) {
    if (value < 256 || value > kWeightsMax || value % 256 != 0) {
      return fail(Code::kInvalidArgument, "{} is {}; it must be a multiple of 256 up to {}", flag, value, kWeightsMax);
    }
  }
  if (flags.isa.empty()) return {};
  const auto isa = tensor::parse_isa(flags.isa);
  if (!isa || *isa > tensor::detect_isa()) {
    return fail(Code::kInvalidArgument, "--isa '{}': this machine has {} and what is below it", flags.isa,
                tensor::isa_name(tensor::detect_isa()));
  }
  options.isa = *isa;
  return {};
}

Result<void> run(KernelFlags& flags) {
  BATON_TRY(check(flags));
  kernels::KernelLimits limits;
  if (!flags.skip_limits) {
    limits = kernels::measure_kernel_limits(flags.options.threads);
    fmt::print("limits at {} threads: read {:.1f} GB/s, int8 {:.0f}, bf16 {:.0f}, f32 {:.0f} GOP/s; kernels: {}\n",
               flags.options.threads, limits.read_gbs, limits.int8_gops, limits.bf16_gops, limits.f32_gops,
               tensor::isa_name(flags.options.isa));
  }
  std::fflush(stdout);
  auto lines = nlohmann::ordered_json::array();
  bool failed = false;
  kernels::run_kernel_bench(flags.options, limits, [&](const kernels::KernelLine& line) {
    print_line(line);
    lines.push_back(line_json(line));
    failed = failed || !line.failure.empty();
  });
  if (!flags.output_json.empty()) {
    nlohmann::ordered_json json{{"date", report_date()},
                                {"threads", flags.options.threads},
                                {"isa", tensor::isa_name(flags.options.isa)},
                                {"lines", std::move(lines)}};
    if (!flags.skip_limits) {
      json["machine_limits"] = {{"read_gbs", limits.read_gbs},
                                {"int8_gops", limits.int8_gops},
                                {"bf16_gops", limits.bf16_gops},
                                {"f32_gops", limits.f32_gops}};
    }
    BATON_TRY(write_report(flags.output_json, json));
  }
  if (failed) return fail(Code::kInternal, "some lines have no figure, as said above");
  return {};
}

}  // namespace

int bench_kernels_command(int argc, char** argv) {
  KernelFlags flags;
  CLI::App app{"Time the kernels beside the machine's limits of the same run.", "baton bench kernels"};
  auto& options = flags.options;
  app.add_option("--threads", options.threads, "Threads")
      ->check(CLI::Range(1, std::max(1, tensor::usable_cores())))
      ->capture_default_str();
  app.add_option("--isa", flags.isa, "reference, avx2 or avx512; not given: the machine's best");
  app.add_option("--filter", options.filter,
                 "A section (matmul, attention, latent, context, error) or a part of lines' names");
  app.add_option("--outputs", options.outputs, "Rows of a weight matrix")->capture_default_str();
  app.add_option("--features", options.features, "Columns of a weight matrix")->capture_default_str();
  app.add_option("--working-set-mb", options.working_set_mb, "Weights that few rows go through; 0: of one matrix")
      ->check(CLI::Range(int64_t{0}, int64_t{65536}))
      ->capture_default_str();
  app.add_option("--output-json", flags.output_json, "File for the result");
  app.add_flag("--skip-limits", flags.skip_limits, "Don't measure the machine first");
  if (const auto status = parse_bench_line(app, argc, argv)) return *status;
  const auto outcome = run(flags);
  if (outcome) return 0;
  fmt::print(stderr, "baton bench kernels: {}\n", outcome.error().message());
  return outcome.error().code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace baton::apps
