#include "engine/ranks/rank_set.h"

#include <condition_variable>
#include <exception>
#include <semaphore>
#include <thread>
#include <utility>

namespace baton::engine {
namespace {

// Counts down to zero; one waits.
class Countdown {
 public:
  explicit Countdown(int count) : left_(count) {}
  void arrive() {
    std::lock_guard lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

}  // namespace

Result<std::unique_ptr<RankSet>> RankSet::load(RankSetOptions options, const MakeModel& make_model) {
  std::unique_ptr<RankSet> set(new RankSet(std::move(options)));
  set->make_ranks();
  BATON_TRY(set->load_models(make_model));
  return set;
}

std::unique_ptr<RankSet> RankSet::of_one(std::unique_ptr<models::Model> model, ComputePool& pool) {
  std::unique_ptr<RankSet> set(new RankSet({.layer_partition = {}, .threads_per_rank = pool.threads(), .enter = {}}));
  set->ranks_.resize(1);
  set->ranks_.front().model = std::move(model);
  set->ranks_.front().pool = &pool;
  set->caller_pool_ = &pool;
  return set;
}

// Threads end before what they work with goes.
RankSet::~RankSet() {
  fail_all("the engine is closing");
  for (auto& rank : ranks_) rank.thread.reset();
}

void RankSet::make_ranks() {
  const int team = team_size();
  ranks_.resize(static_cast<size_t>(stage_count() * team));
  for (int stage = 0; stage < stage_count(); ++stage) {
    teams_.push_back(std::make_unique<parallel::Team>(team, options_.spin_us));
  }
  for (int i = 0; i < size(); ++i) {
    auto& rank = ranks_[static_cast<size_t>(i)];
    rank.place = {.sizes = options_.sizes,
                  .dp_rank = options_.dp_rank,
                  .stage = static_cast<int>(options_.stages.begin) + i / team,
                  .team_rank = i % team};
    make_pool(rank, i);
    if (i == 0 && stage_count() == 1) continue;
    rank.thread = std::make_unique<RankThread>(rank.place.text(), options_.spin_us);
    if (options_.enter) rank.thread->post([this, i] { options_.enter(i); });
  }
  if (stage_count() == 1) {
    caller_pool_ = ranks_.front().pool;
    return;
  }
  own_caller_pool_ = std::make_unique<ComputePool>(ComputePool::Options{.threads = 1, .spin_us = 0});
  caller_pool_ = own_caller_pool_.get();
}

// Compute threads inherit the cores of the thread that makes them.
void RankSet::make_pool(Rank& rank, int index) {
  std::thread([&] {
    if (options_.enter) options_.enter(index);
    rank.own_pool = std::make_unique<ComputePool>(
        ComputePool::Options{.threads = options_.threads_per_rank, .spin_us = options_.spin_us});
  }).join();
  rank.pool = rank.own_pool.get();
}

Result<void> RankSet::load_models(const MakeModel& make_model) {
  std::counting_semaphore<> turns(std::max(1, options_.loaders));
  return on_every_rank([&](Rank& rank) -> Result<void> {
    turns.acquire();
    const auto team = static_cast<size_t>(rank.place.stage - options_.stages.begin);
    auto made = well() ? make_model({.place = rank.place,
                                     .layer_partition = options_.layer_partition,
                                     .group = team_size() == 1 ? parallel::Group()
                                                               : parallel::Group(*teams_[team], rank.place.team_rank),
                                     .replicas = options_.replicas},
                                    *rank.pool)
                       : fail(health().error());
    turns.release();
    if (!made) return fail(std::move(made).error());
    rank.model = *std::move(made);
    return {};
  });
}

int64_t RankSet::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto& rank : ranks_) bytes += rank.model->weight_bytes();
  return bytes;
}

Result<void> RankSet::on_every_rank(const std::function<Result<void>(Rank&)>& work) {
  Countdown left(size());
  const auto one = [&](Rank& rank) {
    guard(rank, [&] {
      const auto done = work(rank);
      if (done) return;
      std::lock_guard lock(mutex_);
      if (first_error_) return;
      first_error_ = size() == 1 ? done.error() : done.error().with_context(rank.place.text());
    });
    {
      std::lock_guard lock(mutex_);
      if (!first_error_) return left.arrive();
    }
    fail_all(first_error_->message());
    left.arrive();
  };
  for (auto& rank : ranks_) {
    if (rank.thread) rank.thread->post([&] { one(rank); });
  }
  if (!ranks_.front().thread) one(ranks_.front());
  left.wait();
  std::lock_guard lock(mutex_);
  if (first_error_) return fail(*first_error_);
  if (!reason_.empty()) return fail(Code::kInternal, "{}", reason_);
  return {};
}

void RankSet::post(Rank& rank, std::function<void()> work) {
  if (!rank.thread) return guard(rank, work);
  rank.thread->post([this, &rank, work = std::move(work)] { guard(rank, work); });
}

void RankSet::guard(const Rank& rank, const std::function<void()>& work) {
  try {
    work();
  } catch (const parallel::GroupBroken& broken) {
    fail_all(broken.what());
  } catch (const std::exception& error) {
    fail_all(size() == 1 ? error.what() : fmt::format("rank {} has died: {}", rank.place.text(), error.what()));
  } catch (...) {
    fail_all(fmt::format("rank {} has died of an exception of unknown type", rank.place.text()));
  }
}

void RankSet::fail_all(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    failed_.store(true);
  }
  for (auto& team : teams_) team->break_up(reason);
}

Result<void> RankSet::health() const {
  std::lock_guard lock(mutex_);
  if (reason_.empty()) return {};
  return fail(Code::kUnavailable, "{}", reason_);
}

}  // namespace baton::engine
