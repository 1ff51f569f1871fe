// Several replicas behind one Engine: internal load balancing. Each request goes to the replica with the fewest live
// requests when it comes, and stays there; which one changes no token (docs/exactness.md).
//
// Any thread may call. Owns its replicas. Never calls one with its own mutex held, since their callbacks take it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace baton::engine {

class DataParallelEngine final : public Engine {
 public:
  // Replicas of one model and configuration; at least one. `first_rank`: the data-parallel rank of the first.
  explicit DataParallelEngine(std::vector<std::unique_ptr<Engine>> replicas, int first_rank = 0);
  ~DataParallelEngine() override;

  // A full replica is passed over; kResourceExhausted when all are. One that the request names is the only one asked.
  Result<void> submit(EngineRequest request, OutputCallback on_output) override;
  void abort(const std::string& id) override;
  void finish(const std::string& id) override;
  int64_t abort_all() override;
  void reset_prefix_cache() override;
  // Summed.
  EngineStats stats() const override;
  // False once any replica has died: the others go on with what they have and take new requests, but whoever watches
  // should replace the process.
  bool healthy() const override;
  std::string health_reason() const override;
  // Of the first replica; its bounds are those of each.
  const EngineConfig& config() const override { return replicas_.front()->config(); }
  int vocab_size() const override { return replicas_.front()->vocab_size(); }
  // All stop admitting at once and are drained side by side.
  void drain(Duration timeout) override;

  int replica_count() const { return static_cast<int>(replicas_.size()); }
  // Live requests of each; for tests and logs.
  std::vector<int64_t> live_counts() const;

 private:
  static constexpr int kNone = -1;

  // Under mutex_. The living replica with the fewest live requests that is not in `tried`; equal ones take turns.
  Result<std::vector<bool>> excluded(const EngineRequest& request) const;
  int choose(const std::vector<bool>& tried) const;
  Result<int> reserve(const std::string& id, const std::vector<bool>& tried);
  void release(const std::string& id);
  int replica_of(const std::string& id) const;
  void wait_until_idle(Duration timeout);

  std::vector<std::unique_ptr<Engine>> replicas_;  // the same from start to end
  const int first_rank_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, int> live_;  // id to replica
  std::vector<int64_t> counts_;
  int last_chosen_ = 0;
  bool draining_ = false;
};

}  // namespace baton::engine
