// D's grants while they are filled: announced to the metaserver, written by P, completed once. Without sockets; all
// calls on one thread, that of its owner.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transfer/layerwise_connector.h"
#include "transfer/layerwise_grant.h"
#include "transfer/plan_cache.h"
#include "transport/shm/shm_mover.h"

namespace baton::transfer {

class LiveGrants {
 public:
  struct Hooks {
    CallMetaserver call;
    // Runs what it is given on the owner's thread; callable from any thread.
    std::function<void(std::function<void()>)> post;
    std::function<void(PullResult)> finished;  // each pull once
    std::function<void()> deadlines_changed;
  };
  // `options` and `arena`, that of the options' ranks, outlive it.
  LiveGrants(const PullConnectorOptions& options, std::shared_ptr<const Holdings> holdings, std::span<std::byte> arena,
             LayerwiseTimeouts timeouts, Hooks hooks);

  // port: where P is to write.
  void begin(Pull pull, int port);
  void cancel(const std::string& request_id);

  // The next three are P's over one connection; an error ends it. An open that succeeds makes the connection one that
  // writes, until lose().
  Result<wire::PushOpenReply> open(uint64_t connection, const wire::PushOpen& open, const wire::EngineIdentity& writer);
  Result<void> store(uint64_t connection, const wire::PushData& data, std::span<const std::byte> payload);
  Result<wire::PushEndReply> end(uint64_t connection, const wire::PushEnd& end);
  // It is closed, whatever came over it.
  void lose(uint64_t connection, uint64_t grant, const Status& why);

  std::optional<TimePoint> next_deadline() const;
  void tick();

 private:
  struct Live {
    Grant grant;
    TimePoint started, deadline;
    bool announced = false;  // the metaserver has answered: P's prefill is over
    std::optional<int32_t> last_token;
  };

  nlohmann::json announcement(const Pull& pull, int port) const;
  void on_metaserver(uint64_t id, const Result<void>& answer);
  void complete(uint64_t id, Result<void> outcome);
  void finish(PullResult result);
  Result<Live*> written_by(uint64_t connection, uint64_t id);
  Result<void> move(std::span<const std::byte> payload);
  TimePoint now() const { return clock_.now(); }

  struct Metrics {
    Histogram transfer_seconds, bytes;
    Counter failed, checksum_failures, received_bytes;
    explicit Metrics(MetricRegistry* registry);
  };

  const PullConnectorOptions& options_;
  const std::shared_ptr<const Holdings> holdings_;
  std::span<std::byte> arena_;
  const LayerwiseTimeouts timeouts_;
  const Hooks hooks_;
  PlanCache plans_;
  Metrics metrics_;
  SteadyClock clock_;
  transport::ShmMover mover_;
  PartMoves moves_;
  std::map<uint64_t, Live> grants_;
  std::map<std::string, uint64_t> names_;  // grants by request
};

}  // namespace baton::transfer
