// Takes steps through the stages of one process. A stage's ranks compute a step together; its first rank passes the
// step to the next stage. Each step has its own slot: rows, what crosses between stages, logits.
//
// Several steps may be under way where the process holds several stages: stages take them in the order of start().
// Memory: slots * (rows * width between stages + logit rows * vocabulary) * 4 bytes.
//
// One thread calls; it computes itself where the first rank is the caller's (rank_set.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/ranks/rank_set.h"
#include "tensor/buffer.h"

namespace baton::engine {

struct PipelineOptions {
  int slots = 1;
  int max_rows = 0;
  int max_logit_rows = 0;
};

class LocalPipeline {
 public:
  // The set's workers are there; it outlives the pipeline. kResourceExhausted.
  static Result<std::unique_ptr<LocalPipeline>> create(RankSet& ranks, const PipelineOptions& options);
  // Waits for what is under way.
  ~LocalPipeline();

  int slots() const { return static_cast<int>(jobs_.size()); }
  int under_way() const { return static_cast<int>(started_ - taken_); }

  // The slot of the next step, to be filled; with fewer than slots() under way.
  RankStep& next_step();
  // [stage_in_floats(rows)] of that step; empty where the process holds the first stage.
  std::span<float> next_input(int64_t rows);
  // Sets it going. `on_done`, if any, is called by a rank's thread when the last stage here has computed it, unless a
  // rank has failed.
  struct Output {
    const RankStep* step = nullptr;
    std::span<const float> stage_out;  // where others hold the next stage
    const float* logits = nullptr;     // where the last stage is here
  };
  using OnDone = std::function<void(const Output&)>;
  void start(OnDone on_done = {});
  // Of the oldest step: waits for it. What it points to holds until the slot is filled again. kUnavailable with the
  // reason when a rank has failed.
  Result<Output> take();

 private:
  struct Job {
    RankStep step;
    std::vector<tensor::Buffer> between;  // [stages + 1]: before each stage, and behind the last
    tensor::Buffer logits;
    OnDone on_done;
    std::atomic<int> ranks_left{0};
    std::atomic<int> last_stage_left{0};
  };
  LocalPipeline(RankSet& ranks, const PipelineOptions& options) : ranks_(ranks), options_(options) {}
  Result<void> allocate(Job& job);
  void run_stage(Job& job, int stage);
  void run_rank(Job& job, int stage, Rank& rank);
  void compute(Job& job, int stage, Rank& rank);
  Output output(Job& job);
  Job& job(uint64_t number) { return *jobs_[number % jobs_.size()]; }
  void wait(const Job& job);

  RankSet& ranks_;
  const PipelineOptions options_;
  std::vector<std::unique_ptr<Job>> jobs_;
  uint64_t started_ = 0, taken_ = 0;
  std::mutex mutex_;
  std::condition_variable done_;
};

}  // namespace baton::engine
