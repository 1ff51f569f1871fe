// The engine's thread around its core, and the door through which other threads come.
//
// The door keeps the ids of live requests and the bounds, under one mutex that the engine thread takes once per step;
// commands go through a bounded queue in their order. The core belongs to the thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "engine/engine_core.h"
#include "engine/seed_source.h"

namespace baton::engine {

class EngineImpl final : public Engine {
 public:
  using MakeCore = std::function<Result<std::unique_ptr<EngineCore>>(EngineCore::Hooks, transfer::WakeEngine)>;
  static Result<std::unique_ptr<EngineImpl>> create(EngineConfig config, int vocab_size, const Clock& clock,
                                                    std::unique_ptr<MetricRegistry> own_registry,
                                                    const MakeCore& make_core);
  ~EngineImpl() override;

  Result<void> submit(EngineRequest request, OutputCallback on_output) override;
  void abort(const std::string& id) override { end(id, FinishReason::kAbort); }
  void finish(const std::string& id) override { end(id, FinishReason::kStop); }
  int64_t abort_all() override;
  void reset_prefix_cache() override;
  EngineStats stats() const override;
  bool healthy() const override;
  std::string health_reason() const override;
  const EngineConfig& config() const override { return config_; }
  int vocab_size() const override { return vocab_size_; }
  void drain(Duration timeout) override;

 private:
  void end(const std::string& id, FinishReason reason);
  struct Abort {
    std::string id;
    FinishReason reason = FinishReason::kAbort;
  };
  struct Decline {
    wire::KvTransferParams params;
  };
  struct Wake {};
  using Command = std::variant<Submission, Abort, Decline, Wake>;

  EngineImpl(EngineConfig config, int vocab_size, const Clock& clock, std::unique_ptr<MetricRegistry> own_registry);

  // Any thread.
  Result<void> admit(EngineRequest& request, OutputCallback& on_output);
  void wake();
  void decline_rejected(const EngineRequest& request);
  Result<void> check_room(const std::string& client) const;
  void leave_queue(const std::string& client);
  void finish_requests(Duration timeout);
  void stop_thread();

  // The engine thread.
  void run();
  void loop();
  void handle_commands();
  void handle(Command command);
  Duration patience() const;
  void publish();
  void die(const std::string& reason);

  const EngineConfig config_;
  const int vocab_size_;
  const Clock& clock_;
  const std::unique_ptr<MetricRegistry> own_registry_;
  BoundedQueue<Command> inbox_;
  std::atomic<bool> wake_pending_{false};
  std::atomic<bool> reset_requested_{false};

  mutable std::mutex door_;
  std::condition_variable changed_;
  std::unordered_map<std::string, bool> live_;          // id, and whether its abort is on its way
  int64_t queued_ = 0;                                  // admitted, not started yet
  std::unordered_map<std::string, int64_t> queued_of_;  // the same by client
  SeedSource seeds_;
  EngineStats stats_;
  bool draining_ = false;
  bool dead_ = false;
  std::string reason_;

  // The engine thread's.
  std::unique_ptr<EngineCore> core_;
  std::vector<Command> commands_;
  size_t next_command_ = 0;

  std::thread thread_;
};

}  // namespace baton::engine
