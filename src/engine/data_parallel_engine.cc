#include "engine/data_parallel_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"

namespace baton::engine {

DataParallelEngine::DataParallelEngine(std::vector<std::unique_ptr<Engine>> replicas, int first_rank)
    : replicas_(std::move(replicas)),
      first_rank_(first_rank),
      counts_(replicas_.size()),
      last_chosen_(replica_count() - 1) {
  BATON_CHECK(!replicas_.empty(), "an engine without replicas");
}

// Their callbacks come until they are gone.
DataParallelEngine::~DataParallelEngine() { replicas_.clear(); }

int DataParallelEngine::choose(const std::vector<bool>& tried) const {
  int best = kNone;
  for (int step = 1; step <= replica_count(); ++step) {
    const int one = (last_chosen_ + step) % replica_count();
    const auto index = static_cast<size_t>(one);
    if (tried[index]) continue;
    if (best == kNone || counts_[index] < counts_[static_cast<size_t>(best)]) best = one;
  }
  return best;
}

Result<int> DataParallelEngine::reserve(const std::string& id, const std::vector<bool>& tried) {
  std::lock_guard lock(mutex_);
  if (draining_) return fail(Code::kUnavailable, "the engine is shutting down");
  if (live_.contains(id)) return fail(Code::kAlreadyExists, "request id {:?} is in use by a live request", id);
  const int chosen = choose(tried);
  if (chosen == kNone) return kNone;
  live_.emplace(id, chosen);
  ++counts_[static_cast<size_t>(chosen)];
  last_chosen_ = chosen;
  return chosen;
}

void DataParallelEngine::release(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto it = live_.find(id);
  if (it == live_.end()) return;
  --counts_[static_cast<size_t>(it->second)];
  live_.erase(it);
  changed_.notify_all();
}

// The dead ones, and all but the one that the request names.
Result<std::vector<bool>> DataParallelEngine::excluded(const EngineRequest& request) const {
  const auto wanted = request.data_parallel_rank;
  if (wanted && (*wanted < first_rank_ || *wanted >= first_rank_ + replica_count())) {
    return fail(Code::kInvalidArgument, "data_parallel_rank {} is out of range [{}, {})", *wanted, first_rank_,
                first_rank_ + replica_count());
  }
  std::vector<bool> out(replicas_.size());
  for (int i = 0; i < replica_count(); ++i) {
    const auto index = static_cast<size_t>(i);
    out[index] = !replicas_[index]->healthy() || (wanted && *wanted != first_rank_ + i);
  }
  return out;
}

Result<void> DataParallelEngine::submit(EngineRequest request, OutputCallback on_output) {
  BATON_TRY_ASSIGN(auto tried, excluded(request));
  Status refusal(Code::kUnavailable, health_reason());
  // Shared by the attempts: a replica that refuses has not called it.
  const auto callback = std::make_shared<OutputCallback>(std::move(on_output));
  for (;;) {
    BATON_TRY_ASSIGN(const int chosen, reserve(request.id, tried));
    if (chosen == kNone) return fail(refusal);
    const auto index = static_cast<size_t>(chosen);
    const auto deliver = [this, callback](RequestOutput&& output) {
      // Before the client hears of the end, so that its id is free by then.
      if (output.finish) release(output.id);
      (*callback)(std::move(output));
    };
    const auto submitted = replicas_[index]->submit(request, deliver);
    if (submitted) return {};
    release(request.id);
    refusal = submitted.error();
    const bool another_may = refusal.code() == Code::kResourceExhausted || refusal.code() == Code::kUnavailable;
    if (!another_may) return submitted;
    tried[index] = true;
  }
}

int DataParallelEngine::replica_of(const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto it = live_.find(id);
  return it == live_.end() ? kNone : it->second;
}

// An id that is not live may name what a replica still offers to a decode engine: only that one knows.
void DataParallelEngine::abort(const std::string& id) {
  if (const int one = replica_of(id); one != kNone) return replicas_[static_cast<size_t>(one)]->abort(id);
  for (const auto& replica : replicas_) replica->abort(id);
}

void DataParallelEngine::finish(const std::string& id) {
  if (const int one = replica_of(id); one != kNone) return replicas_[static_cast<size_t>(one)]->finish(id);
  for (const auto& replica : replicas_) replica->finish(id);
}

int64_t DataParallelEngine::abort_all() {
  int64_t count = 0;
  for (const auto& replica : replicas_) count += replica->abort_all();
  return count;
}

void DataParallelEngine::reset_prefix_cache() {
  for (const auto& replica : replicas_) replica->reset_prefix_cache();
}

EngineStats DataParallelEngine::stats() const {
  EngineStats sum;
  for (const auto& replica : replicas_) {
    const EngineStats one = replica->stats();
    for (const auto member :
         {&EngineStats::running, &EngineStats::waiting, &EngineStats::loading, &EngineStats::kv_blocks_total,
          &EngineStats::kv_blocks_used, &EngineStats::state_slots_total, &EngineStats::state_slots_held,
          &EngineStats::state_snapshots, &EngineStats::prefix_queries, &EngineStats::prefix_hits,
          &EngineStats::preemptions, &EngineStats::last_token_mismatches, &EngineStats::transfer_failures,
          &EngineStats::group_busy, &EngineStats::offers_held}) {
      sum.*member += one.*member;
    }
  }
  return sum;
}

bool DataParallelEngine::healthy() const {
  return std::all_of(replicas_.begin(), replicas_.end(), [](const auto& replica) { return replica->healthy(); });
}

std::string DataParallelEngine::health_reason() const {
  std::string reason;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i]->healthy()) continue;
    reason += fmt::format("{}replica {}: {}", reason.empty() ? "" : "; ", i, replicas_[i]->health_reason());
  }
  return reason;
}

void DataParallelEngine::wait_until_idle(Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  draining_ = true;
  changed_.wait_until(lock, deadline, [&] { return live_.empty(); });
}

// Side by side, since replicas that share experts step together until the last one has nothing to do.
void DataParallelEngine::drain(Duration timeout) {
  const auto begin = std::chrono::steady_clock::now();
  wait_until_idle(timeout);
  const Duration left = std::max(Duration(0), timeout - (std::chrono::steady_clock::now() - begin));
  std::vector<std::jthread> threads;
  for (const auto& replica : replicas_) threads.emplace_back([&replica, left] { replica->drain(left); });
}

std::vector<int64_t> DataParallelEngine::live_counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace baton::engine
