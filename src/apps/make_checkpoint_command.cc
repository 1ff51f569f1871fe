#include "apps/make_checkpoint_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <vector>

#include "apps/serve/load_progress.h"
#include "tensor/cpu.h"
#include "weights/make_checkpoint/make_checkpoint.h"

namespace baton::apps {
namespace {

constexpr int kThreadsMax = 1024;
constexpr int64_t kShardMbMax = 1'000'000'000;

using weights::CheckpointArch;
using weights::CheckpointSizes;

struct MakeFlags {
  std::string arch, out, like = "tiny", dtype = "bf16";
  uint64_t seed = 1;
  int64_t shard_mb = 5000;
  int threads = 0;
  std::vector<int> sizes;  // one per row of the table of sizes, kUnset where no flag was given
};
constexpr int kUnset = -1;

Result<weights::MakeCheckpointOptions> to_options(const MakeFlags& flags) {
  const auto arch = weights::parse_checkpoint_arch(flags.arch);
  if (!arch) {
    return fail(Code::kInvalidArgument, "--arch \"{}\" is not one of {}", flags.arch, weights::checkpoint_arch_list());
  }
  const auto dtype = tensor::parse_dtype(flags.dtype);
  if (!dtype) return fail(Code::kInvalidArgument, "--dtype \"{}\" is not f32, f16 or bf16", flags.dtype);
  if (flags.shard_mb < 1) return fail(Code::kInvalidArgument, "--shard-mb must be at least 1");
  if (flags.shard_mb > kShardMbMax)
    return fail(Code::kInvalidArgument, "--shard-mb is {}; at most {}", flags.shard_mb, kShardMbMax);
  weights::MakeCheckpointOptions options{
      .arch = *arch,
      .sizes = flags.like == "published" ? weights::published_sizes(*arch) : weights::tiny_sizes(*arch),
      .dtype = *dtype,
      .seed = flags.seed,
      .shard_bytes = flags.shard_mb * 1'000'000,
      .progress = {}};
  const auto fields = weights::checkpoint_size_fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (flags.sizes[i] != kUnset) options.sizes.*fields[i].member = flags.sizes[i];
  }
  return options;
}

Result<void> run(const MakeFlags& flags) {
  BATON_TRY_ASSIGN(auto options, to_options(flags));
  LoadProgress progress("writing weights", "weights written");
  options.progress = [&](int64_t done, int64_t total) { progress.show(done, total); };
  ComputePool pool({.threads = flags.threads > 0 ? flags.threads : tensor::usable_cores()});
  BATON_TRY_ASSIGN(const auto made, weights::make_checkpoint(flags.out, options, pool));
  progress.finish();
  fmt::print("{}: {} tensors, {} bytes in {} file{}\n", flags.out, made.tensors, made.bytes, made.files,
             made.files == 1 ? "" : "s");
  return {};
}

}  // namespace

int make_checkpoint_command(int argc, char** argv) {
  MakeFlags flags;
  CLI::App app{
      "Write a random checkpoint of a model family in its published layout, with a small tokenizer, so that it can be "
      "served. One seed and one set of sizes give the same bytes on every machine.",
      "baton make-checkpoint"};
  app.add_option("--arch", flags.arch, "One of " + weights::checkpoint_arch_list())->required();
  app.add_option("--out", flags.out, "The folder to write; must not hold a model")->required();
  app.add_option("--like", flags.like, "Sizes to begin from")
      ->check(CLI::IsMember({"tiny", "published"}))
      ->capture_default_str();
  app.add_option("--dtype", flags.dtype, "bf16, f16 or f32 (`baton quantize` makes the other formats)")
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Other seeds, other weights")->capture_default_str();
  app.add_option("--shard-mb", flags.shard_mb, "Megabytes of weights after which a new file begins")
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "Threads; 0 is as many as there are cores")
      ->check(CLI::Range(0, kThreadsMax))
      ->capture_default_str();
  const auto fields = weights::checkpoint_size_fields();
  flags.sizes.assign(fields.size(), kUnset);
  for (size_t i = 0; i < fields.size(); ++i) {
    app.add_option("--" + std::string(fields[i].flag), flags.sizes[i], std::string(fields[i].help))
        ->check(CLI::NonNegativeNumber)
        ->group("Sizes");
  }
  std::vector<std::string> arguments(argv, argv + argc);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const auto outcome = run(flags); !outcome) {
    fmt::print(stderr, "baton make-checkpoint: {}\n", outcome.error().message());
    return 1;
  }
  return 0;
}

}  // namespace baton::apps
