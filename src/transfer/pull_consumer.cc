// D's end of the pull connector: ConsumerFsm with connections, mapped arenas and a thread that copies.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "transfer/consumer_fsm.h"
#include "transfer/handoff_port.h"
#include "transfer/peer_link.h"
#include "transfer/pull_options.h"
#include "transfer/rank_seals.h"
#include "transfer/sealed_copy.h"
#include "transport/shm/peer_arena.h"
#include "transport/shm/shm_mover.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
constexpr Duration kQuietTimeout = std::chrono::hours(24);  // the state machine knows when silence is wrong
constexpr Duration kShutdownGrace = std::chrono::milliseconds(500);

struct ConsumerMetrics {
  Histogram seconds, bytes;
  Counter failed, checksum_failures, stale, shm_bytes, tcp_bytes;
  explicit ConsumerMetrics(MetricRegistry* registry) {
    if (registry == nullptr) return;
    seconds = registry->histogram("vllm:mooncake_xfer_time_seconds", "Time of a KV transfer, from start to verified.",
                                  {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120});
    bytes = registry->histogram("vllm:mooncake_bytes_transferred", "Bytes of a KV transfer.",
                                {1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11});
    failed = registry->counter("vllm:mooncake_num_failed_transfers", "KV transfers that failed.");
    checksum_failures = registry->counter("baton_handoff_checksum_failures_total",
                                          "KV blocks or frames whose checksum failed; none was used.");
    stale = registry->counter("baton_handoff_stale_blocks_total",
                              "KV blocks that P had reopened before the copy was verified; none was used.");
    const auto by = [&](const char* transport) {
      return registry->counter("baton_handoff_received_bytes_total", "Verified KV bytes received.",
                               {{"transport", transport}});
    };
    shm_bytes = by("shm");
    tcp_bytes = by("tcp");
  }
};

class PullConsumer final : public KvConsumer {
 public:
  PullConsumer(PullConnectorOptions options, std::shared_ptr<const Holdings> holdings, std::span<std::byte> arena);
  ~PullConsumer() override;
  void run() {
    thread_ = std::thread([this] { io_.run(); });
  }

  void start(Pull pull) override;
  void cancel(const std::string& request_id) override;
  void decline(const wire::KvTransferParams& params) override;
  void hold(const wire::KvTransferParams& params) override;
  std::vector<PullResult> poll_completed() override;

 private:
  struct Mapped {
    transport::PeerArena arena;
    RankReaders seals;
  };
  struct Link {
    std::shared_ptr<PeerLink> peer;  // null until connected
    std::optional<Mapped> mapped;
  };

  // The engine's wishes are closures for the state machine, run in order on thread_.
  void order(std::function<void(TimePoint)> wish);

  // All below runs on thread_.
  void act();
  void arm_timer();
  void on(Connect& connect);
  void on(Disconnect& disconnect);
  void on(SendToPeer& send);
  void on(MapArena& map);
  void on(CopyParts& copy);
  void on(Complete& complete);
  Result<Mapped> map(const MapArena& map) const;
  void copy(const CopyParts& copy);
  Result<void> copy_part(const Mapped& from, const ReshardPlan& plan, const PartCopy& part);
  void on_data(ConnectionId id, const wire::BlockData& data, std::span<const std::byte> payload);
  net::Task<void> serve(ConnectionId id, std::string host, int port);
  net::Task<Result<void>> serve_until_broken(ConnectionId id, std::string host, int port);
  TimePoint now() const { return clock_.now(); }

  PullConnectorOptions options_;
  net::TlsOptions tls_;
  const std::shared_ptr<const Holdings> holdings_;
  std::span<std::byte> arena_;
  ConsumerMetrics metrics_;
  SteadyClock clock_;
  transport::ShmMover mover_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  ConsumerFsm fsm_;
  asio::steady_timer timer_;
  std::optional<TimePoint> armed_;
  std::map<ConnectionId, Link> links_;
  SealedCopy copying_;
  PartMoves moves_;
  bool acting_ = false, stopping_ = false;

  std::mutex mutex_;
  std::vector<PullResult> completed_;
  std::thread thread_;
};

PullConsumer::PullConsumer(PullConnectorOptions options, std::shared_ptr<const Holdings> holdings,
                           std::span<std::byte> arena)
    : options_(std::move(options)),
      tls_(tls_options(options_.tls)),
      holdings_(std::move(holdings)),
      arena_(arena),
      metrics_(options_.metrics),
      fsm_({.identity = options_.identity,
            .allow = options_.allow,
            .transport = options_.transport,
            .holdings = holdings_,
            .claim = options_.peer_claim,
            .pull_timeout = options_.pull_timeout,
            .first_call = random_id() >> 1}),
      timer_(io_) {}

PullConsumer::~PullConsumer() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    stopping_ = true;
    timer_.cancel();
    for (auto& [id, link] : links_) {
      if (link.peer) link.peer->close();
    }
    work_.reset();
    timer_.expires_after(kShutdownGrace);
    timer_.async_wait([this](auto error) {
      if (!error) io_.stop();
    });
    if (links_.empty()) timer_.cancel();
  });
  thread_.join();
}

void PullConsumer::order(std::function<void(TimePoint)> wish) {
  asio::post(io_, [this, wish = std::move(wish)] {
    if (stopping_) return;
    wish(now());
    act();
  });
}

void PullConsumer::start(Pull pull) {
  for (const BlockId block : pull.blocks) {
    BATON_CHECK(block.value >= 0 && block.value < holdings_->block_count, "block={}", block);
  }
  const auto slot = pull.state_slot.value_or(0);
  BATON_CHECK(!pull.state_slot || (slot >= 0 && slot < holdings_->slot_count), "slot={}", slot);
  order([this, pull = std::move(pull)](TimePoint at) { fsm_.start(pull, at); });
}
void PullConsumer::cancel(const std::string& request_id) {
  order([this, request_id](TimePoint at) { fsm_.cancel(request_id, at); });
}
void PullConsumer::decline(const wire::KvTransferParams& params) {
  order([this, params](TimePoint at) { fsm_.decline(params, at); });
}
void PullConsumer::hold(const wire::KvTransferParams& params) {
  order([this, params](TimePoint at) { fsm_.hold(params, at); });
}
std::vector<PullResult> PullConsumer::poll_completed() {
  std::lock_guard lock(mutex_);
  return std::exchange(completed_, {});
}

void PullConsumer::act() {
  if (acting_) return;
  acting_ = true;
  for (auto actions = fsm_.take_actions(); !actions.empty(); actions = fsm_.take_actions()) {
    for (auto& action : actions) {
      std::visit([this](auto& a) { on(a); }, action);
    }
  }
  acting_ = false;
  if (!stopping_) arm_timer();
}

void PullConsumer::arm_timer() {
  const auto next = fsm_.next_deadline();
  if (!next || (armed_ && *armed_ <= *next)) return;
  armed_ = next;
  timer_.expires_at(*next);
  timer_.async_wait([this](auto error) {
    if (error) return;
    armed_.reset();
    fsm_.tick(now());
    act();
  });
}

void PullConsumer::on(Connect& connect) {
  links_.try_emplace(connect.connection);
  asio::co_spawn(
      io_, [this, id = connect.connection, host = connect.host, port = connect.port] { return serve(id, host, port); },
      asio::detached);
}

void PullConsumer::on(Disconnect& disconnect) {
  const auto it = links_.find(disconnect.connection);
  if (it == links_.end()) return;
  if (it->second.peer) it->second.peer->close();
  links_.erase(it);
}

void PullConsumer::on(SendToPeer& send) {
  const auto it = links_.find(send.connection);
  if (it != links_.end() && it->second.peer) it->second.peer->send(std::move(send.message));
}

void PullConsumer::on(MapArena& wanted) {
  Result<void> outcome;
  if (const auto it = links_.find(wanted.connection); it != links_.end()) {
    if (auto mapped = map(wanted)) {
      it->second.mapped.emplace(std::move(*mapped));
    } else {
      outcome = fail(mapped.error());
      log_info("event=handoff_over_tcp reason=\"{}\"", mapped.error().message());
    }
  }
  fsm_.on_mapped(wanted.connection, outcome, now());
}

Result<PullConsumer::Mapped> PullConsumer::map(const MapArena& wanted) const {
  BATON_TRY_ASSIGN(auto peer, transport::PeerArena::map(wanted.location));
  const Holdings& theirs = *wanted.holdings;
  if (theirs.arenas.data_bytes() > std::ssize(peer.data())) {
    return fail(Code::kUnavailable, "{} blocks and {} slots of {} ranks don't fit the peer's KV arena of {} bytes",
                theirs.block_count, theirs.slot_count, theirs.rank_count(), peer.data().size());
  }
  BATON_TRY_ASSIGN(auto seals, RankReaders::over(theirs, peer.table()));
  return Mapped{std::move(peer), std::move(seals)};
}

// Posted, so that messages and cancels are served between slices.
void PullConsumer::on(CopyParts& work) {
  asio::post(io_, [this, work = std::move(work)] { copy(work); });
}

void PullConsumer::copy(const CopyParts& work) {
  const auto link = links_.find(work.connection);
  size_t good = 0;
  Result<void> outcome;
  if (stopping_ || link == links_.end() || !link->second.mapped) {
    outcome = fail(Code::kUnavailable, "the prefill engine has gone");
  }
  for (; outcome && good < work.parts.size(); ++good) {
    outcome = copy_part(*link->second.mapped, *work.plan, work.parts[good]);
    if (!outcome) break;
  }
  fsm_.on_copied(work.leg, good, outcome, now());
  act();
}

Result<void> PullConsumer::copy_part(const Mapped& from, const ReshardPlan& plan, const PartCopy& part) {
  auto outcome = copying_.begin(from.seals, plan, part);
  if (outcome) outcome = copying_.end(store(mover_, copying_.moves(), from.arena.data(), arena_));
  if (outcome) {
    metrics_.shm_bytes.add(static_cast<double>(plan.part_bytes(part.rank, part.state, part.tokens)));
  } else if (outcome.error().code() == Code::kFailedPrecondition) {
    metrics_.stale.add();
  } else {
    metrics_.checksum_failures.add();
  }
  return outcome;
}

void PullConsumer::on_data(ConnectionId id, const wire::BlockData& data, std::span<const std::byte> payload) {
  const auto payload_bytes = static_cast<int64_t>(payload.size());
  const auto target = fsm_.on_block_data(id, data, payload_bytes, now());
  if (!target) return;
  moves_.clear();
  append_payload_moves(*target->plan, target->part, *target->span, target->first, target->count, data.checksums,
                       moves_);
  auto stored = store(mover_, moves_, payload, arena_);
  if (stored) {
    metrics_.tcp_bytes.add(static_cast<double>(payload_bytes));
  } else {
    metrics_.checksum_failures.add();
    stored = fail(
        stored.error().with_context(fmt::format("{} {} of rank {}", target->part.state ? "state slot" : "block",
                                                target->part.from, target->plan->from().rank(target->part.rank).name)));
  }
  fsm_.on_stored(target->leg, data, payload_bytes, stored, now());
}

void PullConsumer::on(Complete& complete) {
  auto& result = complete.result;
  if (result.outcome) {
    metrics_.seconds.observe(result.seconds);
    metrics_.bytes.observe(static_cast<double>(result.bytes));
  } else if (result.outcome.error().code() != Code::kCancelled) {
    metrics_.failed.add();
    log_warning("event=kv_pull_failed request={} valid_tokens={} bytes={} reason=\"{}\"", result.request_id,
                result.valid_tokens, result.bytes, result.outcome.error().to_string());
  }
  {
    std::lock_guard lock(mutex_);
    completed_.push_back(std::move(result));
  }
  if (options_.wake) options_.wake();
}

net::Task<void> PullConsumer::serve(ConnectionId id, std::string host, int port) {
  const auto ended = co_await serve_until_broken(id, std::move(host), port);
  if (const auto it = links_.find(id); it != links_.end()) {
    if (it->second.peer) it->second.peer->close();
    links_.erase(it);
  }
  if (stopping_) {
    if (links_.empty()) timer_.cancel();
    co_return;
  }
  fsm_.on_disconnected(id, ended ? Status(Code::kUnavailable, "connection closed") : ended.error(), now());
  act();
}

net::Task<Result<void>> PullConsumer::serve_until_broken(ConnectionId id, std::string host, int port) {
  BATON_CO_TRY_ASSIGN(
      auto stream, co_await connect_to_port(options_, options_.tls.enabled() ? &tls_ : nullptr, std::move(host), port));
  const auto it = links_.find(id);
  if (it == links_.end()) co_return fail(Code::kCancelled, "no longer wanted");
  const auto link = std::make_shared<PeerLink>(std::move(stream), /*payload_bytes_max=*/1u << 20);
  it->second.peer = link;
  link->start_writing();
  fsm_.on_connected(id, now());
  act();
  while (true) {
    BATON_CO_TRY_ASSIGN(const auto frame, co_await link->channel().read({.start = kQuietTimeout}));
    if (stopping_) co_return fail(Code::kCancelled, "shutting down");
    if (const auto* data = std::get_if<wire::BlockData>(&frame.message)) {
      on_data(id, *data, frame.payload);
    } else {
      fsm_.on_message(id, frame.message, now());
      link->channel().allow_payload(static_cast<uint32_t>(fsm_.payload_bytes_max(id)));
    }
    act();
  }
}

}  // namespace

Result<std::unique_ptr<KvConsumer>> make_kv_consumer(PullConnectorOptions options, std::span<std::byte> arena) {
  BATON_TRY_ASSIGN(auto holdings, complete_consumer_options(options, arena));
  auto consumer = std::make_unique<PullConsumer>(std::move(options), std::move(holdings), arena);
  consumer->run();
  return consumer;
}

}  // namespace baton::transfer
