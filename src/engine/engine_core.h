// The engine without its thread: requests in, one step at a time, outputs by callback. One thread owns it; it never
// waits, so tests and simulators can drive it step by step.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/engine_metrics.h"
#include "engine/executor.h"
#include "engine/handoff.h"
#include "engine/kv_budget.h"
#include "engine/kv_host.h"
#include "engine/rank_metrics.h"
#include "engine/ranks/rank_set.h"
#include "engine/replica_group.h"
#include "engine/scheduler/scheduler.h"
#include "engine/worker/step_sampler.h"
#include "kv/state_pool.h"

namespace baton::engine {

// A request that has passed check_request, with its seed set.
struct Submission {
  EngineRequest request;
  OutputCallback on_output;
  TimePoint arrival;
  bool seed_drawn = false;  // here, not by the client
};

// What a core works with. Destroyed from the last to the first.
struct EngineParts {
  std::unique_ptr<KvHost> host;
  std::unique_ptr<transfer::KvProducer> producer;  // over the host's, where other processes offer with it; else null
  std::unique_ptr<RankSet> ranks;
  std::unique_ptr<ReplicaGroup> replicas;  // null: no other replica steps with this one
  std::unique_ptr<Executor> executor;
};

class EngineCore {
 public:
  struct Hooks {
    std::function<void(const std::string& id)> on_end;  // just before a request's last output
    // A request of this client starts for the first time, or ends before.
    std::function<void(const std::string& client)> on_leave_queue;
  };
  // counts.blocks are of block_tokens tokens each.
  struct Cache {
    KvCounts counts;
    int block_tokens = 0;
  };
  EngineCore(EngineConfig config, SchedulerOptions scheduler, Cache cache, EngineParts parts, EngineMetrics metrics,
             RankMetrics rank_metrics, const Clock& clock, Hooks hooks);
  // Gives up what is offered to others; their blocks are no longer answered for.
  ~EngineCore();

  void submit(Submission submission);
  // Ends a live request with kAbort, or gives up what a finished one offers. Unknown ids are ignored.
  void abort(const std::string& id, FinishReason reason = FinishReason::kAbort);
  void decline(const wire::KvTransferParams& params) { handoff_.decline(params); }
  void reset_prefix_cache();
  void fail_all(const Status& error);

  // Takes what connectors have ready, starts a step, and takes the result of the oldest when no more may be under way,
  // or nothing more can start. False when nothing could be done now. An error is the engine's end: a rank, a process or
  // a replica has gone.
  Result<bool> step();
  // Before the end of an engine that has failed: tells other processes why.
  void leave(const std::string& reason);
  // The engine's thread ends in order: replicas that step together can't wait for this one any more.
  void leave_group();

  bool has_requests() const { return !records_.empty(); }
  bool handoff_pending() const { return handoff_.pending(); }
  EngineStats stats() const;

 private:
  struct Record {
    std::string id, client;
    OutputCallback on_output;
    RequestTimes times;
    bool seed_drawn = false;
    uint64_t seed = 0;
    int max_tokens = 0;
    std::optional<wire::KvTransferParams> transfer;
    int64_t wanted_external = 0, wanted_tokens = 0;
    bool wanted_state = false;
    int64_t transferred_bytes = 0;
    double transfer_seconds = 0;
    bool first_output_made = false;
  };

  std::unique_ptr<Sequence> make_sequence(Submission& submission, SequenceId id, Record& record);
  void poll_handoff();
  void take_loaded(Handoff::Loaded loaded);
  void start_transfers(StepPlan& plan);
  Result<void> begin(StepPlan plan);
  Result<void> finish_oldest();
  // Until no step is under way: whatever takes blocks away, or reads them, waits for that.
  void settle();
  void take_update(SequenceUpdate update, TimePoint now);
  void unstick();
  void end_overdue();
  RequestOutput make_output(Record& record, Sequence& sequence);
  void end_early(SequenceId id, FinishReason reason, std::optional<Status> error);
  void deliver_last(SequenceId id, const Sequence& sequence, RequestOutput output);

  const EngineConfig config_;
  const Clock& clock_;
  const Hooks hooks_;
  const EngineParts parts_;
  StepSampler sampler_;
  EngineMetrics metrics_;
  RankMetrics rank_metrics_;
  kv::BlockManager blocks_;
  kv::StatePool states_;
  Scheduler scheduler_;
  Handoff handoff_;
  std::deque<StepPlan> under_way_;
  TimePoint overdue_looked_at_{};
  std::optional<Status> failure_;  // of the ranks: nothing goes on
  int64_t next_id_ = 0;
  std::unordered_map<SequenceId, Record> records_;
  std::unordered_map<std::string, SequenceId> by_client_id_;
  int64_t mismatches_ = 0;
  int64_t transfer_failures_ = 0;
};

}  // namespace baton::engine
