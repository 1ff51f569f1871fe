#include "apps/quantize_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <vector>

#include "apps/serve/load_progress.h"
#include "base/log.h"
#include "tensor/cpu.h"
#include "weights/quantize/quantize_checkpoint.h"

namespace baton::apps {
namespace {

constexpr int kThreadsMax = 1024;
constexpr int64_t kShardMbMax = 1'000'000'000;

struct QuantizeFlags {
  std::string in, out, scheme, input_scale_from;
  float input_range = 8;
  int64_t shard_mb = 5000;
  int threads = 0;
};

constexpr const char* kFooter =
    "Schemes: fp8-block (DeepSeek's), int4-group32 (Kimi K2.5's: routed experts), mxfp4 (Kimi K3's: routed experts), "
    "and\n"
    "ModelSlim's for `--quantization ascend`: w8a8 (attention static, the rest dynamic), w8a8-dynamic, w4a8-dynamic "
    "and\n"
    "w4a8-mxfp (routed experts in 4 bits), w8a8-mxfp8.\n"
    "A run that was interrupted goes on where it stopped when it is given the same words again.";

Result<void> run(const QuantizeFlags& flags) {
  const auto scheme = weights::parse_quant_scheme(flags.scheme);
  if (!scheme) {
    return fail(Code::kInvalidArgument, "--scheme \"{}\" is not one of {}", flags.scheme, weights::quant_scheme_list());
  }
  if (flags.shard_mb < 1) return fail(Code::kInvalidArgument, "--shard-mb must be at least 1");
  if (flags.shard_mb > kShardMbMax)
    return fail(Code::kInvalidArgument, "--shard-mb is {}; at most {}", flags.shard_mb, kShardMbMax);
  weights::QuantizeOptions options{.scheme = *scheme,
                                   .shard_bytes = flags.shard_mb * 1'000'000,
                                   .inputs = {},
                                   .input_range = flags.input_range,
                                   .progress = {}};
  if (!flags.input_scale_from.empty()) {
    if (*scheme != weights::QuantScheme::kW8A8) {
      return fail(Code::kInvalidArgument, "--input-scale-from is for --scheme w8a8 alone");
    }
    BATON_TRY_ASSIGN(options.inputs, weights::read_input_scales(flags.input_scale_from));
  }
  LoadProgress progress("quantising", "quantised weights written");
  options.progress = [&](int64_t done, int64_t total) { progress.show(done, total); };
  ComputePool pool({.threads = flags.threads > 0 ? flags.threads : tensor::usable_cores()});
  BATON_TRY_ASSIGN(const auto report, weights::quantize_checkpoint(flags.in, flags.out, options, pool));
  progress.finish();
  if (report.files_resumed > 0) log_info("{} of {} files stood already", report.files_resumed, report.files);
  if (report.unfit > 0) {
    log_warning("{} matrices stay as they were, such as {}", report.unfit, report.unfit_example);
  }
  fmt::print("{}: {} matrices quantised, {} other tensors kept, {} bytes in {} file{}\n", flags.out, report.quantised,
             report.kept, report.bytes, report.files, report.files == 1 ? "" : "s");
  return {};
}

}  // namespace

int quantize_command(int argc, char** argv) {
  QuantizeFlags flags;
  CLI::App app{"Quantise a checkpoint folder of bf16, f16 or f32 weights into a published form.", "baton quantize"};
  app.add_option("IN", flags.in, "Folder with config.json and *.safetensors")->required();
  app.add_option("OUT", flags.out, "Folder to write; new, or left by an interrupted run")->required();
  app.add_option("--scheme", flags.scheme, "One of " + weights::quant_scheme_list())->required();
  app.add_option("--input-scale-from", flags.input_scale_from,
                 "w8a8: JSON of each static matrix's input, {\"model.layers.0.self_attn.q_a_proj\": {\"scale\": 0.04, "
                 "\"offset\": 0}, ...}")
      ->check(CLI::ExistingFile);
  app.add_option("--input-range", flags.input_range,
                 "w8a8 without that file: static inputs lie within this (they are normed), the rest is cut")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--shard-mb", flags.shard_mb, "Megabytes after which a new file begins")->capture_default_str();
  app.add_option("--threads", flags.threads, "Threads; 0 is as many as there are cores")
      ->check(CLI::Range(0, kThreadsMax))
      ->capture_default_str();
  app.footer(kFooter);
  std::vector<std::string> arguments(argv, argv + argc);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const auto outcome = run(flags); !outcome) {
    fmt::print(stderr, "baton quantize: {}\n", outcome.error().message());
    return 1;
  }
  return 0;
}

}  // namespace baton::apps
