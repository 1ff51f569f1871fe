// One prompt's push by one process of P: a connection to D, what is there to be sent, and how it ends. Lives on the
// producer's thread.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/metrics.h"
#include "net/stream.h"
#include "transfer/layerwise_connector.h"
#include "transfer/plan_cache.h"
#include "transfer/push_frames.h"
#include "transfer/push_steps.h"
#include "transport/tcp/frame_channel.h"

namespace baton::transfer {

// What the sessions of a producer share. Outlives them.
struct PushContext {
  const PullConnectorOptions& options;
  const net::TlsOptions& tls;
  const std::shared_ptr<const Holdings> holdings;
  const std::span<const std::byte> arena;
  const LayerwiseTimeouts timeouts;
  PlanCache plans;
  Counter sent_bytes;
  SteadyClock clock;
};

class PushSession {
 public:
  // about: any step of the prompt.
  PushSession(PushContext& context, boost::asio::io_context& io, PushStep about);

  void add(PushJob job);
  // The prefill is over: what the jobs so far have not sent, the state, and the end.
  void finish(Offer offer);
  void give_up();
  void close();
  bool given_up() const { return given_up_; }
  const std::optional<Offer>& offered() const { return offer_; }
  // Seconds of pushing while the prompt was still being computed, and from its end on; of a push that went well.
  double hidden_seconds() const { return hidden_; }
  double exposed_seconds() const { return seconds_between(prefilled_, context_.clock.now()); }

  // Sends all until D has all, or the session is given up. Once.
  net::Task<Result<void>> run();

 private:
  net::Task<Result<void>> open();
  net::Task<Result<void>> greet();
  net::Task<Result<void>> push(const PushJob& job);
  net::Task<Result<void>> push_state();
  net::Task<Result<void>> write(wire::PushData frame, const PushSource& source);
  net::Task<Result<void>> end();
  PushJob next_job();
  std::unexpected<Status> refused(const wire::Message& answer, std::string_view what) const;

  PushContext& context_;
  const PushStep about_;
  std::deque<PushJob> jobs_;
  boost::asio::steady_timer wake_;
  std::unique_ptr<transport::FrameChannel> channel_;
  std::shared_ptr<const ReshardPlan> plan_;
  int64_t skip_tokens_ = 0;
  bool want_state_ = false;
  std::optional<Offer> offer_;
  bool given_up_ = false;
  double busy_ = 0, hidden_ = 0;  // seconds
  TimePoint prefilled_;
};

}  // namespace baton::transfer
