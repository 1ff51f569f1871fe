// What sharing a model among ranks costs: a step of one sequence on one rank with as many threads as there are ranks,
// and on a team of ranks with one thread each. The work is the same; the difference is what is lost at barriers and to
// row-wise work that each rank does.
//   ranks_bench [RANKS] [MODEL]      a random Llama of SmolLM2-135M's widths and 10 layers where no model is named
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/check.h"
#include "models/model.h"
#include "weights/random_checkpoint.h"

namespace baton::models {
namespace {

struct Job {
  int rows = 1;
  int context = 256;  // tokens before
};

// One rank's model, cache and pool.
class Rank {
 public:
  Rank(const std::string& path, parallel::Team& team, int ranks, int rank, int threads)
      : pool_({.threads = threads}), group_(team, rank) {
    LoadOptions options{.isa = tensor::detect_isa()};
    options.rank = {.place = {.sizes = {.tp = ranks}, .team_rank = rank}, .group = group_};
    auto model = load_model(path, options, pool_);
    BATON_CHECK(model.has_value(), "{}", model.error().to_string());
    model_ = std::move(*model);
    entries_ = model_->cache_needs().paged;
    view_.block_size = kTokens;
    for (auto& entry : entries_) {
      offsets_.push_back(view_.block_stride);
      view_.block_stride += kernels::entry_block_bytes(entry, kTokens);
    }
    view_.entries = entries_;
    view_.entry_offsets = offsets_;
    bytes_.resize(static_cast<size_t>(view_.block_stride));
    view_.blocks = bytes_.data();
  }

  void prepare() { BATON_CHECK(model_->prepare(kRows, 1, pool_.threads()).has_value()); }
  int vocab() const { return model_->vocab_size(); }

  // Milliseconds of the best of `times` steps.
  double run(const Job& job, int times, float* logits) {
    std::vector<int32_t> tokens(static_cast<size_t>(job.rows)), positions(tokens.size());
    for (int i = 0; i < job.rows; ++i) {
      tokens[static_cast<size_t>(i)] = 3 + i % 256;
      positions[static_cast<size_t>(i)] = job.context + i;
    }
    const kernels::SequenceSlice slice = {.block_table = &block_, .context_len = job.context, .row_count = job.rows};
    const int32_t last = job.rows - 1;
    double best = 1e9;
    for (int i = 0; i < times; ++i) {
      group_.barrier();
      const auto begin = std::chrono::steady_clock::now();
      model_->forward(
          {.tokens = tokens, .positions = positions, .slices = {&slice, 1}, .logit_rows = {&last, 1}, .cache = view_},
          logits, pool_);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    return best;
  }

  static constexpr int kTokens = 1024, kRows = 512;

 private:
  ComputePool pool_;
  parallel::Group group_;
  std::unique_ptr<Model> model_;
  std::vector<kernels::PagedEntry> entries_;
  std::vector<int64_t> offsets_;
  std::vector<std::byte> bytes_;
  kernels::CacheView view_;
  int32_t block_ = 0;
};

void measure(const std::string& path, int ranks, int threads, const std::vector<Job>& jobs, std::vector<double>& took) {
  parallel::Team team(ranks, ranks > 1 ? 200 : 0);
  std::vector<std::unique_ptr<Rank>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<Rank>(path, team, ranks, r, threads));
  std::vector<float> logits(static_cast<size_t>(all[0]->vocab()));
  std::vector<std::thread> workers;
  took.assign(jobs.size(), 0);
  for (int r = 0; r < ranks; ++r) {
    workers.emplace_back([&, r] {
      Rank& rank = *all[static_cast<size_t>(r)];
      rank.prepare();
      for (size_t j = 0; j < jobs.size(); ++j) {
        const double best = rank.run(jobs[j], jobs[j].rows > 16 ? 12 : 60, logits.data());
        if (r == 0) took[j] = best;
      }
    });
  }
  for (auto& worker : workers) worker.join();
}

int run(int ranks, std::string path) {
  const std::string made = (std::filesystem::temp_directory_path() / "baton_ranks_bench").string();
  if (path.empty()) {
    const auto written = weights::write_random_huggingface(made, {.layers = 10,
                                                                  .hidden = 576,
                                                                  .heads = 9,
                                                                  .kv_heads = 3,
                                                                  .head_dim = 64,
                                                                  .intermediate = 1536,
                                                                  .vocab = 49152,
                                                                  .dtype = tensor::DType::kBF16});
    BATON_CHECK(written.has_value(), "{}", written.error().to_string());
    path = made;
  }
  const std::vector<Job> jobs = {{1, 256}, {8, 256}, {64, 256}, {512, 0}};
  std::vector<double> one, threaded, team;
  measure(path, 1, 1, jobs, one);
  measure(path, 1, ranks, jobs, threaded);
  measure(path, ranks, 1, jobs, team);
  fmt::print("{:>5} {:>8} {:>16} {:>16} {:>16} {:>7}\n", "rows", "context", "1 rank 1 thread", "1 rank n threads",
             "n ranks 1 thread", "ratio");
  for (size_t j = 0; j < jobs.size(); ++j) {
    fmt::print("{:>5} {:>8} {:>13.3f} ms {:>13.3f} ms {:>13.3f} ms {:>7.2f}\n", jobs[j].rows, jobs[j].context, one[j],
               threaded[j], team[j], team[j] / threaded[j]);
  }
  std::error_code ignored;
  std::filesystem::remove_all(made, ignored);
  return 0;
}

}  // namespace
}  // namespace baton::models

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  return baton::models::run(ranks, argc > 2 ? argv[2] : "");
}
