// P's end of the layerwise connector: a session and a connection per request, fed by the thread that computes.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "kv/seal_table.h"
#include "transfer/layerwise_connector.h"
#include "transfer/layerwise_units.h"
#include "transfer/pull_options.h"
#include "transport/tcp/auth.h"
#include "transport/tcp/frame_channel.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kConnectTimeout = seconds(5);
constexpr Duration kWriteTimeout = seconds(10);
constexpr int64_t kFrameBytes = 1 << 20;

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

class LayerwiseProducer final : public KvProducer {
 public:
  LayerwiseProducer(PullConnectorOptions options, std::span<const std::byte> arena, LayerwiseTimeouts timeouts)
      : options_(std::move(options)),
        layout_(options_.ranks.front().layout),
        tls_(tls_options(options_.tls)),
        arena_(arena),
        timeouts_(timeouts),
        metrics_(options_.metrics),
        thread_([this] { io_.run(); }) {}
  ~LayerwiseProducer() override;

  bool pushes() const override { return true; }
  void plan_push(PushStep step) override;
  void entries_ready(int count) override;
  wire::KvTransferParams offer(Offer offer) override;
  std::vector<std::string> poll_released() override {
    std::lock_guard lock(mutex_);
    return std::exchange(released_, {});
  }
  void revoke(const std::string& request_id) override {
    asio::post(io_, [this, request_id] { give_up(request_id); });
  }

 private:
  // Its blocks are let go of with the last job that reads them.
  struct Planned {
    PushStep step;
    LayerwiseProducer& owner;
    Planned(PushStep with, LayerwiseProducer& of) : step(std::move(with)), owner(of) {}
    ~Planned() { owner.release(step.ticket); }
  };
  struct Job {
    std::shared_ptr<const Planned> planned;
    kv::EntryRange entries;
  };
  struct Session {
    explicit Session(asio::io_context& io) : wake(io) {}
    std::shared_ptr<const Planned> about;  // until it is open: whose words open it
    std::deque<Job> jobs;
    asio::steady_timer wake;
    std::shared_ptr<transport::FrameChannel> channel;
    std::optional<Offer> offer;  // the prefill is over
    bool given_up = false, failed = false;
    double busy = 0;  // seconds of pushing
    double hidden = 0;
    TimePoint prefilled;
  };
  using SessionRef = std::shared_ptr<Session>;

  void release(std::string name);
  // All below runs on thread_.
  void take(std::vector<Job> jobs);
  void take_offer(Offer offer);
  void give_up(const std::string& request_id);
  net::Task<void> run(std::string request_id, SessionRef session);
  net::Task<Result<void>> push_all(Session& session);
  net::Task<Result<wire::PushOpenReply>> open(Session& session);
  net::Task<Result<void>> push(Session& session, const Job& job, int64_t first_wanted);
  net::Task<Result<void>> push_entry(Session& session, const Job& job, int entry, int64_t first_wanted);
  net::Task<Result<void>> push_state(Session& session, uint64_t grant);
  net::Task<Result<void>> end(Session& session, uint64_t grant);
  TimePoint now() const { return clock_.now(); }

  PullConnectorOptions options_;
  const kv::CacheLayout layout_;
  net::TlsOptions tls_;
  std::span<const std::byte> arena_;
  const LayerwiseTimeouts timeouts_;
  ProducerMetrics metrics_;
  SteadyClock clock_;

  std::mutex mutex_;  // guards what the computing threads and ours exchange
  std::vector<std::string> released_;
  std::vector<std::shared_ptr<const Planned>> planned_;  // of the step at hand
  int ready_ = 0;                                        // entries of it

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  std::map<std::string, SessionRef> sessions_;
  bool stopping_ = false;
  std::thread thread_;
};

LayerwiseProducer::~LayerwiseProducer() {
  asio::post(io_, [this] {
    stopping_ = true;
    for (const auto& [id, session] : sessions_) {
      if (session->channel) session->channel->close();
    }
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
  auto planned = std::make_shared<const Planned>(std::move(step), *this);
  std::lock_guard lock(mutex_);
  planned_.push_back(std::move(planned));
}

void LayerwiseProducer::entries_ready(int count) {
  std::vector<Job> jobs;
  {
    std::lock_guard lock(mutex_);
    if (planned_.empty() || count <= ready_) return;
    for (const auto& planned : planned_) jobs.push_back({planned, {ready_, count - ready_}});
    ready_ = count;
    if (count >= layout_.blocks.entry_count()) {
      planned_.clear();
      ready_ = 0;
    }
  }
  asio::post(io_, [this, jobs = std::move(jobs)]() mutable { take(std::move(jobs)); });
}

void LayerwiseProducer::take(std::vector<Job> jobs) {
  if (stopping_) return;
  for (auto& job : jobs) {
    const auto& id = job.planned->step.request_id;
    auto& session = sessions_[id];
    if (!session) {
      session = std::make_shared<Session>(io_);
      session->about = job.planned;
      asio::co_spawn(io_, [this, id, session] { return run(id, session); }, asio::detached);
    }
    if (session->failed || session->given_up) continue;
    session->jobs.push_back(std::move(job));
    session->wake.cancel();
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
  if (found == sessions_.end() || found->second->failed) {
    release(offer.request_id);
    if (found != sessions_.end()) sessions_.erase(found);
    return;
  }
  auto& session = *found->second;
  session.prefilled = now();
  session.hidden = session.busy;
  session.offer = std::move(offer);
  session.wake.cancel();
}

void LayerwiseProducer::give_up(const std::string& request_id) {
  const auto found = sessions_.find(request_id);
  if (found == sessions_.end()) return;
  auto& session = *found->second;
  session.given_up = true;
  session.jobs.clear();
  session.wake.cancel();
  if (session.offer && session.channel) session.channel->close();
  if (session.failed) sessions_.erase(found);
}

net::Task<void> LayerwiseProducer::run(std::string request_id, SessionRef session) {
  const auto outcome = co_await push_all(*session);
  if (stopping_) co_return;
  (outcome ? metrics_.done : metrics_.failed).add();
  session->jobs.clear();
  session->about.reset();
  if (session->channel) session->channel->close();
  if (!outcome) {
    session->failed = true;
    log_warning("event=kv_push_failed request={} reason=\"{}\"", request_id, outcome.error().to_string());
  } else if (session->offer) {
    metrics_.hidden.add(session->hidden);
    metrics_.exposed.add(seconds_between(session->prefilled, now()));
  }
  if (session->offer) release(session->offer->request_id);
  // One that failed is remembered until the engine has done with it.
  if (session->offer || session->given_up) sessions_.erase(request_id);
}

net::Task<Result<void>> LayerwiseProducer::push_all(Session& session) {
  BATON_CO_TRY_ASSIGN(const auto answer, co_await open(session));
  const int64_t first_wanted = answer.skip_tokens / layout_.blocks.block_size();
  while (true) {
    while (session.jobs.empty() && !session.offer && !session.given_up) {
      session.wake.expires_after(timeouts_.prefill);
      const auto [woken] = co_await session.wake.async_wait(kAwait);
      if (!woken) co_return fail(Code::kDeadlineExceeded, "the prefill does not go on");
    }
    if (session.given_up) {
      (void)co_await session.channel->write(wire::PushEnd{answer.grant_id, false, 0}, {}, kWriteTimeout);
      co_return Result<void>{};
    }
    if (session.jobs.empty()) break;
    const Job job = std::move(session.jobs.front());
    session.jobs.pop_front();
    const TimePoint began = now();
    BATON_CO_TRY(co_await push(session, job, first_wanted));
    session.busy += seconds_between(began, now());
  }
  if (answer.want_state) BATON_CO_TRY(co_await push_state(session, answer.grant_id));
  co_return co_await end(session, answer.grant_id);
}

net::Task<Result<wire::PushOpenReply>> LayerwiseProducer::open(Session& session) {
  const auto about = session.about;
  const auto& step = about->step;
  const auto& params = step.params;
  BATON_CO_TRY_ASSIGN(auto stream, co_await net::connect({.host = params.remote_host,
                                                          .port = params.remote_port,
                                                          .timeout = kConnectTimeout,
                                                          .tls = options_.tls.enabled() ? &tls_ : nullptr,
                                                          .allow = options_.peers.predicate()}));
  BATON_CO_TRY(co_await transport::authenticate_as_client(*stream, options_.secret, kConnectTimeout));
  session.channel = std::make_shared<transport::FrameChannel>(std::move(stream), 0);
  auto& channel = *session.channel;
  BATON_CO_TRY(co_await channel.write(wire::Hello{options_.identity}, {}, kWriteTimeout));
  BATON_CO_TRY_ASSIGN(const auto greeting, co_await channel.read({.start = timeouts_.tail}));
  const auto* hello = std::get_if<wire::HelloReply>(&greeting.message);
  if (hello == nullptr) {
    const auto* error = std::get_if<wire::ErrorReply>(&greeting.message);
    co_return fail(error != nullptr ? error->code : Code::kDataLoss, "decode engine at {}:{}: {}", params.remote_host,
                   params.remote_port, error != nullptr ? error->message : "no greeting");
  }
  const auto agreed = wire::compare_identity(options_.identity, hello->identity, options_.allow);
  if (agreed && !(options_.identity.layout == hello->identity.layout)) {
    co_return fail(Code::kMismatch, "the KV of both engines must have one layout for a layerwise hand-off");
  }
  if (!agreed) co_return fail(agreed.error().with_context("prefill engine refuses the hand-off"));
  BATON_CO_TRY(co_await channel.write(wire::PushOpen{.grant_id = params.baton_offer_id,
                                                     .token_count = step.token_count,
                                                     .prompt = step.prompt,
                                                     .has_state = step.has_state},
                                      {}, kWriteTimeout));
  BATON_CO_TRY_ASSIGN(const auto opened, co_await channel.read({.start = timeouts_.tail}));
  session.about.reset();
  if (const auto* reply = std::get_if<wire::PushOpenReply>(&opened.message)) co_return *reply;
  const auto* error = std::get_if<wire::ErrorReply>(&opened.message);
  co_return fail(error != nullptr ? error->code : Code::kDataLoss, "decode engine at {}:{}: {}", params.remote_host,
                 params.remote_port, error != nullptr ? error->message : "no answer to PushOpen");
}

net::Task<Result<void>> LayerwiseProducer::push(Session& session, const Job& job, int64_t first_wanted) {
  for (int entry = job.entries.first; entry < job.entries.end(); ++entry) {
    BATON_CO_TRY(co_await push_entry(session, job, entry, first_wanted));
  }
  co_return Result<void>{};
}

// Frames of about a megabyte: one entry of some consecutive blocks.
net::Task<Result<void>> LayerwiseProducer::push_entry(Session& session, const Job& job, int entry,
                                                      int64_t first_wanted) {
  const auto& step = job.planned->step;
  const auto& g = layout_.blocks;
  const int units = g.entries()[static_cast<size_t>(entry)].units;
  const auto count = static_cast<int64_t>(step.blocks.size());
  for (int64_t i = std::max<int64_t>(0, first_wanted - step.first_block); i < count;) {
    wire::PushData data{.grant_id = step.params.baton_offer_id,
                        .entry = static_cast<uint32_t>(entry),
                        .first_block = static_cast<uint32_t>(step.first_block + i),
                        .checksums = {}};
    std::vector<std::span<const std::byte>> pieces;
    int64_t bytes = 0;
    for (; i < count && (bytes == 0 || bytes + g.entry_bytes(entry) <= kFrameBytes); ++i, ++data.block_count) {
      const int64_t place = step.first_block + i;
      const auto tokens =
          static_cast<int>(std::min<int64_t>(g.block_size(), step.token_count - place * g.block_size()));
      const auto block =
          arena_.subspan(static_cast<size_t>(layout_.block_offset(step.blocks[static_cast<size_t>(i)].value)),
                         static_cast<size_t>(g.block_bytes()));
      for (int unit = 0; unit < units; ++unit) {
        data.checksums.push_back(kv::unit_checksum(g, block.data(), entry, unit, tokens));
      }
      for (const auto piece : entry_pieces(g, block, tokens, entry)) pieces.push_back(piece);
      bytes += g.sealed_bytes(tokens, {entry, 1});
    }
    BATON_CO_TRY(co_await session.channel->write(data, pieces, kWriteTimeout));
    metrics_.sent_bytes.add(static_cast<double>(bytes));
  }
  co_return Result<void>{};
}

net::Task<Result<void>> LayerwiseProducer::push_state(Session& session, uint64_t grant) {
  if (!session.offer->state_slot) co_return fail(Code::kMismatch, "there is no recurrent state of the prompt");
  const auto& g = layout_.states;
  const auto slot = arena_.subspan(static_cast<size_t>(layout_.slot_offset(*session.offer->state_slot)),
                                   static_cast<size_t>(g.block_bytes()));
  for (int entry = 0; entry < g.entry_count(); ++entry) {
    wire::PushData data{
        .grant_id = grant, .entry = static_cast<uint32_t>(entry), .block_count = 1, .state = true, .checksums = {}};
    for (int unit = 0; unit < g.entries()[static_cast<size_t>(entry)].units; ++unit) {
      data.checksums.push_back(kv::unit_checksum(g, slot.data(), entry, unit, 1));
    }
    const auto pieces = entry_pieces(g, slot, 1, entry);
    BATON_CO_TRY(co_await session.channel->write(data, pieces, kWriteTimeout));
    metrics_.sent_bytes.add(static_cast<double>(g.sealed_bytes(1, {entry, 1})));
  }
  co_return Result<void>{};
}

net::Task<Result<void>> LayerwiseProducer::end(Session& session, uint64_t grant) {
  BATON_CO_TRY(
      co_await session.channel->write(wire::PushEnd{grant, true, session.offer->last_token_id}, {}, kWriteTimeout));
  BATON_CO_TRY_ASSIGN(const auto frame, co_await session.channel->read({.start = kWriteTimeout}));
  if (const auto* reply = std::get_if<wire::PushEndReply>(&frame.message)) {
    if (reply->complete) co_return Result<void>{};
    co_return fail(Code::kDataLoss, "the decode engine lacks a part of the KV");
  }
  const auto* error = std::get_if<wire::ErrorReply>(&frame.message);
  co_return fail(error != nullptr ? error->code : Code::kDataLoss, "decode engine: {}",
                 error != nullptr ? error->message : "no answer to PushEnd");
}

}  // namespace

Result<std::unique_ptr<KvProducer>> make_layerwise_producer(PullConnectorOptions options,
                                                            std::span<const std::byte> arena,
                                                            LayerwiseTimeouts timeouts) {
  BATON_TRY(check_one_rank(options));
  BATON_TRY(complete_options(options));
  const auto& layout = options.ranks.front().layout;
  if (arena.size() < static_cast<size_t>(layout.data_bytes())) {
    return fail(Code::kInvalidArgument, "hand-off: a KV arena of {} bytes is too small for {} blocks and {} slots",
                arena.size(), layout.block_count, layout.slot_count);
  }
  return std::make_unique<LayerwiseProducer>(std::move(options), arena, timeouts);
}

}  // namespace baton::transfer
