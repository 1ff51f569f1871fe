// P's end of the layerwise connector: a session and a connection per request, fed by the threads that compute.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "transfer/layerwise_connector.h"
#include "transfer/pull_options.h"
#include "transfer/push_session.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;

struct ProducerMetrics {
  Counter hidden, exposed, sent_bytes, done, failed;
  explicit ProducerMetrics(MetricRegistry* registry) {
    if (registry == nullptr) return;
    hidden = registry->counter("baton_handoff_push_hidden_seconds_total",
                               "Time of layerwise hand-offs while the prompt was still being computed.");
    exposed = registry->counter("baton_handoff_push_exposed_seconds_total",
                                "Time of layerwise hand-offs from the end of the prefill until D had all.");
    sent_bytes = registry->counter("baton_handoff_sent_bytes_total", "KV bytes sent over TCP.");
    const auto ended = [&](const char* reason) {
      return registry->counter("baton_handoff_pushes_ended_total", "Layerwise hand-offs that ended, by outcome.",
                               {{"outcome", reason}});
    };
    done = ended("done");
    failed = ended("failed");
  }
};

std::vector<int> entry_counts(const Holdings& holdings) {
  std::vector<int> counts;
  for (const auto& rank : holdings.ranks) counts.push_back(rank.layout.blocks.entry_count());
  return counts;
}

class LayerwiseProducer final : public KvProducer {
 public:
  LayerwiseProducer(PullConnectorOptions options, std::shared_ptr<const Holdings> holdings,
                    std::span<const std::byte> arena, LayerwiseTimeouts timeouts)
      : options_(std::move(options)),
        holdings_(std::move(holdings)),
        tls_(tls_options(options_.tls)),
        metrics_(options_.metrics),
        context_{.options = options_,
                 .tls = tls_,
                 .holdings = holdings_,
                 .arena = arena,
                 .timeouts = timeouts,
                 .plans = PlanCache(holdings_, PlanCache::Side::kGives),
                 .sent_bytes = metrics_.sent_bytes,
                 .clock = {}},
        steps_(entry_counts(*holdings_)),
        thread_([this] { io_.run(); }) {}
  ~LayerwiseProducer() override;

  bool pushes() const override { return true; }
  void plan_push(PushStep step) override;
  void entries_ready(int rank, uint64_t step, int count) override;
  wire::KvTransferParams offer(Offer offer) override;
  std::vector<std::string> poll_released() override {
    std::lock_guard lock(mutex_);
    return std::exchange(released_, {});
  }
  void revoke(const std::string& request_id) override {
    asio::post(io_, [this, request_id] { give_up(request_id); });
  }

 private:
  using SessionRef = std::shared_ptr<PushSession>;
  // One that failed is remembered until the engine has done with it.
  struct Entry {
    SessionRef session;
    bool failed = false;
  };

  void release(std::string name);
  // All below runs on thread_.
  void open(const PushStep& about);
  void take(std::vector<PushJob> jobs);
  void take_offer(Offer offer);
  void give_up(const std::string& request_id);
  net::Task<void> run(std::string request_id, SessionRef session);

  PullConnectorOptions options_;
  const std::shared_ptr<const Holdings> holdings_;
  net::TlsOptions tls_;
  ProducerMetrics metrics_;
  PushContext context_;

  std::mutex mutex_;  // guards what the computing threads, the engine's and ours exchange
  std::vector<std::string> released_;
  PushSteps steps_;

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  std::map<std::string, Entry> sessions_;
  bool stopping_ = false;
  std::thread thread_;
};

LayerwiseProducer::~LayerwiseProducer() {
  asio::post(io_, [this] {
    stopping_ = true;
    for (const auto& [id, entry] : sessions_) entry.session->close();
    work_.reset();
    io_.stop();
  });
  thread_.join();
}

void LayerwiseProducer::release(std::string name) {
  {
    std::lock_guard lock(mutex_);
    released_.push_back(std::move(name));
  }
  if (options_.wake) options_.wake();
}

void LayerwiseProducer::plan_push(PushStep step) {
  const int64_t tokens = holdings_->block_tokens(), first = step.begin_token / tokens;
  BATON_CHECK(step.push_id != 0 && step.begin_token < step.end_token && step.end_token <= step.token_count &&
                  std::ssize(step.blocks) == (step.end_token + tokens - 1) / tokens - first,
              "request={} tokens={} to {} of {} blocks={}", step.request_id, step.begin_token, step.end_token,
              step.token_count, step.blocks.size());
  for (const BlockId block : step.blocks) {
    BATON_CHECK(block.value >= 0 && block.value < holdings_->block_count, "block={}", block);
  }
  auto about = step;
  about.blocks.clear();
  auto planned =
      std::make_shared<const PlannedPush>(std::move(step), [this](const std::string& ticket) { release(ticket); });
  {
    std::lock_guard lock(mutex_);
    steps_.plan(std::move(planned));
  }
  asio::post(io_, [this, about = std::move(about)] { open(about); });
}

void LayerwiseProducer::entries_ready(int rank, uint64_t step, int count) {
  std::vector<PushJob> jobs;
  std::vector<PlannedRef> done;
  {
    std::lock_guard lock(mutex_);
    jobs = steps_.ready(rank, step, count, done);
  }
  if (!jobs.empty()) asio::post(io_, [this, jobs = std::move(jobs)]() mutable { take(std::move(jobs)); });
}

void LayerwiseProducer::open(const PushStep& about) {
  auto& entry = sessions_[about.request_id];
  if (entry.session || stopping_) return;
  entry.session = std::make_shared<PushSession>(context_, io_, about);
  asio::co_spawn(io_, run(about.request_id, entry.session), asio::detached);
}

void LayerwiseProducer::take(std::vector<PushJob> jobs) {
  for (auto& job : jobs) {
    const auto found = sessions_.find(job.planned->step().request_id);
    if (found != sessions_.end() && !found->second.failed) found->second.session->add(std::move(job));
  }
}

wire::KvTransferParams LayerwiseProducer::offer(Offer offer) {
  wire::KvTransferParams params;
  params.remote_engine_id = options_.identity.engine_id;
  params.remote_request_id = offer.request_id;
  params.last_token_id = offer.last_token_id;
  asio::post(io_, [this, offer = std::move(offer)]() mutable { take_offer(std::move(offer)); });
  return params;
}

void LayerwiseProducer::take_offer(Offer offer) {
  const auto found = sessions_.find(offer.request_id);
  if (found != sessions_.end() && !found->second.failed) return found->second.session->finish(std::move(offer));
  release(offer.request_id);
  if (found != sessions_.end()) sessions_.erase(found);
}

void LayerwiseProducer::give_up(const std::string& request_id) {
  const auto found = sessions_.find(request_id);
  if (found == sessions_.end()) return;
  found->second.session->give_up();
  if (found->second.failed) sessions_.erase(found);
}

net::Task<void> LayerwiseProducer::run(std::string request_id, SessionRef session) {
  const auto outcome = co_await session->run();
  if (stopping_) co_return;
  (outcome ? metrics_.done : metrics_.failed).add();
  session->close();
  const auto& offered = session->offered();
  if (!outcome) {
    sessions_[request_id].failed = true;
    log_warning("event=kv_push_failed request={} reason=\"{}\"", request_id, outcome.error().to_string());
  } else if (offered) {
    metrics_.hidden.add(session->hidden_seconds());
    metrics_.exposed.add(session->exposed_seconds());
  }
  if (offered) release(offered->request_id);
  if (offered || session->given_up()) sessions_.erase(request_id);
}

}  // namespace

Result<std::unique_ptr<KvProducer>> make_layerwise_producer(PullConnectorOptions options,
                                                            std::span<const std::byte> arena,
                                                            LayerwiseTimeouts timeouts) {
  BATON_TRY_ASSIGN(auto holdings, complete_options(options));
  if (std::ssize(arena) < holdings->arenas.data_bytes()) {
    return fail(Code::kInvalidArgument,
                "hand-off: a KV arena of {} bytes is too small for {} blocks and {} slots of {} ranks", arena.size(),
                holdings->block_count, holdings->slot_count, holdings->rank_count());
  }
  return std::make_unique<LayerwiseProducer>(std::move(options), std::move(holdings), arena, timeouts);
}

}  // namespace baton::transfer
