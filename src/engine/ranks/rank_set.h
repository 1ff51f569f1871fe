// The ranks of one process: for each its place in the grid, its compute threads, its share of the model. One rank is
// the trivial grid.
//
// Each rank has a thread, but the first rank of a process that holds a single stage: that one works on the caller's
// thread (the engine thread), so that an engine of one rank is one thread. Whatever a rank throws breaks up every team
// of the process: all ranks come back, and the first reason is kept.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/status.h"
#include "engine/ranks/rank_thread.h"
#include "engine/worker/worker.h"
#include "models/model.h"

namespace baton::engine {

struct RankSetOptions {
  parallel::GridSizes sizes;
  int dp_rank = 0;
  parallel::Share stages{0, 1};      // that this process holds
  std::vector<int> layer_partition;  // layers per stage; empty: even
  models::ReplicaExchange* replicas = nullptr;
  int threads_per_rank = 1;
  int spin_us = 50;  // of threads that wait for each other; 0 when ranks exceed cores
  int loaders = 1;   // ranks that load their share at a time
  // Called first on the thread of the i-th rank of this process, and on the one that makes its compute threads, which
  // inherit what it sets: for pinning.
  std::function<void(int rank)> enter;
};

struct Rank {
  parallel::RankPlace place;
  std::unique_ptr<ComputePool> own_pool;
  ComputePool* pool = nullptr;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<Worker> worker;      // once the cache is there
  std::unique_ptr<RankThread> thread;  // null: the caller's
};

class RankSet {
 public:
  using MakeModel = std::function<Result<std::unique_ptr<models::Model>>(const models::RankSetup&, ComputePool&)>;
  // Every rank loads its share. Errors name the rank.
  static Result<std::unique_ptr<RankSet>> load(RankSetOptions options, const MakeModel& make_model);
  // A loaded model over a pool of the caller's, which must outlive the set.
  static std::unique_ptr<RankSet> of_one(std::unique_ptr<models::Model> model, ComputePool& pool);
  ~RankSet();

  const RankSetOptions& options() const { return options_; }
  const parallel::GridSizes& sizes() const { return options_.sizes; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int team_size() const { return options_.sizes.team_size(); }
  int stage_count() const { return static_cast<int>(options_.stages.count()); }
  // In order of stages, then of team ranks.
  Rank& rank(int i) { return ranks_[static_cast<size_t>(i)]; }
  const Rank& rank(int i) const { return ranks_[static_cast<size_t>(i)]; }
  Rank& rank(int stage, int team_rank) { return rank(stage * team_size() + team_rank); }  // stage: of this process
  models::Model& model() { return *ranks_.front().model; }
  const models::Model& model() const { return *ranks_.front().model; }
  int64_t weight_bytes() const;
  bool holds_first_stage() const { return options_.stages.begin == 0; }
  bool holds_last_stage() const { return options_.stages.end == options_.sizes.pp; }
  // What the caller's thread may compute with, when no step is under way on it.
  ComputePool& caller_pool() { return *caller_pool_; }

  // Runs `work` for every rank on its thread and waits for all. The first error; a failed rank breaks up the teams.
  Result<void> on_every_rank(const std::function<Result<void>(Rank&)>& work);
  // Posts to the rank's thread, or runs at once for the caller's rank. What `work` throws fails the set.
  void post(Rank& rank, std::function<void()> work);

  // Runs `work` here; what it throws fails the set. On the rank's thread.
  void guard(const Rank& rank, const std::function<void()>& work);

  // Any thread. Every team breaks up; the first reason counts.
  void fail_all(const std::string& reason);
  bool well() const { return !failed_.load(); }
  Result<void> health() const;

 private:
  explicit RankSet(RankSetOptions options) : options_(std::move(options)) {}
  void make_ranks();
  void make_pool(Rank& rank, int index);
  Result<void> load_models(const MakeModel& make_model);

  RankSetOptions options_;
  std::vector<std::unique_ptr<parallel::Team>> teams_;  // of the stages here
  std::unique_ptr<ComputePool> own_caller_pool_;
  ComputePool* caller_pool_ = nullptr;
  std::vector<Rank> ranks_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::string reason_;                 // empty: well
  std::optional<Status> first_error_;  // of on_every_rank
};

}  // namespace baton::engine
