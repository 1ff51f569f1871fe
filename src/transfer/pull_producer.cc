// P's end of the pull connector: ProducerFsm with a listening socket, a seal table and a thread.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "transfer/handoff_port.h"
#include "transfer/part_frames.h"
#include "transfer/peer_link.h"
#include "transfer/producer_fsm.h"
#include "transfer/pull_options.h"
#include "transfer/rank_seals.h"
#include "transfer/seal_job.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;
constexpr Duration kGreetTimeout = seconds(5);
constexpr Duration kQuietTimeout = seconds(180);  // D renews leases or hangs up long before
constexpr Duration kDataTimeout = seconds(10);
constexpr int64_t kSealSliceBytes = 16 << 20;
constexpr Duration kShutdownGrace = std::chrono::milliseconds(500);

struct ProducerMetrics {
  Gauge requests, blocks;
  Counter expired, revoked, aborted, done, refused, sent_bytes, sealed_bytes;
  Histogram seal_seconds;
  explicit ProducerMetrics(MetricRegistry* registry) {
    if (registry == nullptr) return;
    requests = registry->gauge("vllm:mooncake_pd_delayed_release_requests", "Requests whose KV is kept for a decoder.");
    blocks = registry->gauge("vllm:mooncake_pd_delayed_release_blocks", "KV blocks kept for decoders.");
    const auto ended = [&](const char* reason) {
      return registry->counter("baton_handoff_offers_ended_total", "Offers that ended, by reason.",
                               {{"reason", reason}});
    };
    expired = ended("expired");
    revoked = ended("revoked");
    aborted = ended("aborted");
    done = ended("done");
    refused = registry->counter("baton_handoff_refused_connections_total",
                                "Connections to the hand-off port without secret, protocol or matching identity.");
    sent_bytes = registry->counter("baton_handoff_sent_bytes_total", "KV bytes sent over TCP.");
    sealed_bytes = registry->counter("baton_handoff_sealed_bytes_total", "KV bytes checksummed for offers.");
    seal_seconds =
        registry->histogram("baton_handoff_seal_seconds", "Time to checksum an offer.", {0.0001, 0.001, 0.01, 0.1, 1});
  }
};

class PullProducer final : public KvProducer {
 public:
  PullProducer(PullConnectorOptions options, std::shared_ptr<const Holdings> holdings, RankSeals seals,
               std::span<const std::byte> arena, wire::HelloReply hello)
      : options_(std::move(options)),
        holdings_(std::move(holdings)),
        seals_(std::move(seals)),
        arena_(arena),
        metrics_(options_.metrics),
        fsm_({.hello = std::move(hello),
              .holdings = holdings_,
              .claim = options_.peer_claim,
              .allow = options_.allow,
              .lease = options_.lease}),
        timer_(io_),
        port_(
            io_, options_, [this] { return links_.size(); },
            [this](std::unique_ptr<net::Stream> stream) { return serve(std::move(stream)); }, metrics_.refused) {}
  ~PullProducer() override;

  Result<void> listen();
  wire::KvTransferParams offer(Offer offer) override;
  wire::HandoffAddress address() const override { return {options_.advertised_host, port_.port()}; }
  void set_members(std::vector<wire::HandoffAddress> members) override;
  std::vector<std::string> poll_released() override;
  void revoke(const std::string& request_id) override;

 private:
  struct Sealing {
    SealJob job;
    double seconds = 0;
    int64_t bytes = 0;
  };

  // All below runs on thread_.
  void drain_inbox();
  void act();
  void arm_timer();
  void on(SealBlocks& seal);
  void on(SendToConnection& send);
  void on(SendBlocks& send);
  void on(ReopenBlocks& reopen);
  void on(Release& release);
  void on(CloseConnection& close);
  void seal_slice();
  net::Task<Result<void>> write_blocks(transport::FrameChannel& channel, const SendBlocks& send);
  net::Task<Result<void>> write_part(transport::FrameChannel& channel, const SendBlocks& send, size_t index);
  net::Task<void> serve(std::unique_ptr<net::Stream> stream);
  net::Task<void> serve_messages(ConnectionId id, PeerLink& link);
  TimePoint now() const { return clock_.now(); }

  PullConnectorOptions options_;
  const std::shared_ptr<const Holdings> holdings_;
  RankSeals seals_;
  std::span<const std::byte> arena_;
  ProducerMetrics metrics_;
  SteadyClock clock_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  ProducerFsm fsm_;
  asio::steady_timer timer_;
  std::optional<TimePoint> armed_;
  HandoffPort port_;
  std::map<ConnectionId, std::shared_ptr<PeerLink>> links_;
  ConnectionId next_connection_ = 1;
  std::deque<Sealing> sealing_;
  bool acting_ = false, stopping_ = false;

  std::mutex mutex_;  // guards what the engine's thread and ours exchange
  std::vector<std::pair<uint64_t, Offer>> offers_;
  std::vector<std::string> revokes_;
  std::vector<std::string> released_;
  std::thread thread_;
};

Result<void> PullProducer::listen() {
  BATON_TRY(port_.listen());
  thread_ = std::thread([this] { io_.run(); });
  return {};
}

PullProducer::~PullProducer() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    stopping_ = true;
    port_.close();
    timer_.cancel();
    for (const auto& [id, link] : std::map(links_)) link->close();
    work_.reset();
    // Coroutines end as their streams close; what doesn't is dropped with the context.
    timer_.expires_after(kShutdownGrace);
    timer_.async_wait([this](auto error) {
      if (!error) io_.stop();
    });
    if (links_.empty()) timer_.cancel();
  });
  thread_.join();
}

wire::KvTransferParams PullProducer::offer(Offer offer) {
  const int64_t used = holdings_->blocks_for(offer.token_count);
  BATON_CHECK(offer.token_count > 0 && used <= static_cast<int64_t>(offer.blocks.size()), "tokens={} blocks={}",
              offer.token_count, offer.blocks.size());
  wire::KvTransferParams params;
  params.do_remote_prefill = true;
  params.remote_engine_id = options_.identity.engine_id;
  params.remote_request_id = offer.request_id;
  params.remote_host = options_.advertised_host;
  params.remote_port = port_.port();
  auto& ids = params.remote_block_ids.emplace_back();
  for (int64_t i = 0; i < used; ++i) {
    const int32_t block = offer.blocks[static_cast<size_t>(i)].value;
    BATON_CHECK(block >= 0 && block < holdings_->block_count, "block={}", block);
    ids.push_back(block);
  }
  params.remote_num_prompt_tokens = offer.token_count;
  const auto slot = offer.state_slot.value_or(0);
  BATON_CHECK(!offer.state_slot || (slot >= 0 && slot < holdings_->slot_count), "slot={}", slot);
  params.remote_block_size = static_cast<int>(holdings_->block_tokens());
  params.last_token_id = offer.last_token_id;
  params.baton_offer_id = offer.offer_id != 0 ? offer.offer_id : random_id();
  params.kv_lease_duration_s = std::chrono::duration<double>(options_.lease).count();
  {
    std::lock_guard lock(mutex_);
    offers_.emplace_back(params.baton_offer_id, std::move(offer));
  }
  asio::post(io_, [this] {
    drain_inbox();
    act();
  });
  return params;
}

void PullProducer::set_members(std::vector<wire::HandoffAddress> members) {
  asio::post(io_, [this, members = std::move(members)]() mutable { fsm_.set_members(std::move(members)); });
}

std::vector<std::string> PullProducer::poll_released() {
  std::lock_guard lock(mutex_);
  return std::exchange(released_, {});
}

void PullProducer::revoke(const std::string& request_id) {
  {
    std::lock_guard lock(mutex_);
    revokes_.push_back(request_id);
  }
  asio::post(io_, [this] {
    drain_inbox();
    act();
  });
}

// Also called before every message, so that D's first question can't overtake the offer it is about.
void PullProducer::drain_inbox() {
  std::vector<std::pair<uint64_t, Offer>> offers;
  std::vector<std::string> revokes;
  {
    std::lock_guard lock(mutex_);
    offers.swap(offers_);
    revokes.swap(revokes_);
  }
  for (auto& [id, offer] : offers) fsm_.offer(id, std::move(offer), now());
  for (const auto& request : revokes) fsm_.revoke(request);
}

void PullProducer::act() {
  if (acting_) return;
  acting_ = true;
  for (auto actions = fsm_.take_actions(); !actions.empty(); actions = fsm_.take_actions()) {
    for (auto& action : actions) {
      std::visit([this](auto& a) { on(a); }, action);
    }
  }
  acting_ = false;
  metrics_.requests.set(static_cast<double>(fsm_.live_offers()));
  metrics_.blocks.set(static_cast<double>(fsm_.held_blocks()));
  if (!stopping_) arm_timer();
}

void PullProducer::arm_timer() {
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

void PullProducer::on(SealBlocks& seal) {
  sealing_.push_back({.job = SealJob(std::move(seal))});
  if (sealing_.size() == 1) asio::post(io_, [this] { seal_slice(); });
}

void PullProducer::seal_slice() {
  Sealing& sealing = sealing_.front();
  const TimePoint began = now();
  for (int64_t bytes = 0; bytes < kSealSliceBytes && !sealing.job.done();) {
    const int64_t covered = sealing.job.step(seals_, holdings_->rank_count());
    bytes += covered;
    sealing.bytes += covered;
  }
  sealing.seconds += seconds_between(began, now());
  if (sealing.job.done()) {
    const Sealing finished = std::move(sealing);
    sealing_.pop_front();
    metrics_.seal_seconds.observe(finished.seconds);
    metrics_.sealed_bytes.add(static_cast<double>(finished.bytes));
    fsm_.on_sealed(finished.job.offer_id(), finished.job.generations(), now());
    act();
  }
  if (!sealing_.empty()) asio::post(io_, [this] { seal_slice(); });
}

void PullProducer::on(SendToConnection& send) {
  if (const auto it = links_.find(send.connection); it != links_.end()) it->second->send(std::move(send.message));
}

void PullProducer::on(SendBlocks& send) {
  const ConnectionId connection = send.connection;
  const uint64_t offer_id = send.offer_id;
  const auto finished = [this, connection, offer_id] {
    fsm_.on_blocks_sent(connection, offer_id);
    act();
  };
  const auto it = links_.find(connection);
  if (it == links_.end()) return finished();
  it->second->send(
      [this, work = std::move(send)](transport::FrameChannel& channel) { return write_blocks(channel, work); },
      finished);
}

net::Task<Result<void>> PullProducer::write_blocks(transport::FrameChannel& channel, const SendBlocks& send) {
  for (size_t i = 0; i < send.parts.size(); ++i) BATON_CO_TRY(co_await write_part(channel, send, i));
  co_return Result<void>{};
}

net::Task<Result<void>> PullProducer::write_part(transport::FrameChannel& channel, const SendBlocks& send,
                                                 size_t index) {
  auto frames = PartFrames::of(*holdings_, seals_, arena_, send, index);
  if (!frames) {
    const wire::ErrorReply error{send.call, send.offer_id, frames.error().code(), frames.error().message()};
    co_return co_await channel.write(error, {}, kDataTimeout);
  }
  while (const auto frame = frames->next()) {
    BATON_CO_TRY(co_await channel.write(frame->data, frame->payload, kDataTimeout));
    metrics_.sent_bytes.add(static_cast<double>(frame->payload_bytes));
  }
  co_return Result<void>{};
}

void PullProducer::on(ReopenBlocks& reopen) {
  for (const int32_t block : reopen.blocks) seals_.reopen(block, /*state=*/false);
  for (const int32_t slot : reopen.slots) seals_.reopen(slot, /*state=*/true);
}

void PullProducer::on(Release& release) {
  Counter* const counters[] = {&metrics_.done, &metrics_.aborted, &metrics_.expired, &metrics_.revoked};
  counters[static_cast<size_t>(release.reason)]->add();
  if (release.reason == EndReason::kExpired) {
    log_warning("event=lease_expired request={} lease_s={}", release.request_id,
                std::chrono::duration<double>(options_.lease).count());
  }
  {
    std::lock_guard lock(mutex_);
    released_.push_back(std::move(release.request_id));
  }
  if (options_.wake) options_.wake();
}

void PullProducer::on(CloseConnection& close) {
  metrics_.refused.add();
  const auto it = links_.find(close.connection);
  if (it == links_.end()) return;
  log_warning("event=handoff_refused peer={} reason=\"{}\"", it->second->channel().stream().peer(),
              close.reason.message());
  it->second->close_after_flush();
}

net::Task<void> PullProducer::serve(std::unique_ptr<net::Stream> stream) {
  const ConnectionId id = next_connection_++;
  const auto link = std::make_shared<PeerLink>(std::move(stream), /*payload_bytes_max=*/0);
  links_[id] = link;
  link->start_writing();
  co_await serve_messages(id, *link);
  links_.erase(id);
  fsm_.on_closed(id, now());
  act();
  if (stopping_ && links_.empty()) timer_.cancel();
}

net::Task<void> PullProducer::serve_messages(ConnectionId id, PeerLink& link) {
  transport::FrameChannel::ReadLimits limits{.start = kGreetTimeout, .body_bytes_max = wire::kFirstBodyBytesMax};
  while (true) {
    auto frame = co_await link.channel().read(limits);
    if (!frame) {
      const Code code = frame.error().code();
      if (code == Code::kDataLoss || code == Code::kMismatch || code == Code::kOutOfRange) {
        metrics_.refused.add();
        link.send(wire::ErrorReply{0, 0, code, frame.error().message()});
        link.close_after_flush();
      } else {
        link.close();
      }
      co_return;
    }
    limits = {.start = kQuietTimeout};
    drain_inbox();
    fsm_.on_message(id, frame->message, now());
    act();
  }
}

}  // namespace

Result<std::unique_ptr<KvProducer>> make_kv_producer(PullConnectorOptions options, transport::SharedArena& arena) {
  BATON_TRY_ASSIGN(auto holdings, complete_options(options));
  BATON_TRY_ASSIGN(auto seals, RankSeals::over(holdings, arena.table(), arena.data()));
  wire::HelloReply hello{.identity = options.identity,
                         .block_count = holdings->block_count,
                         .slot_count = holdings->slot_count,
                         .lease_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options.lease).count(),
                         .shm = {},
                         .members = {}};
  if (options.transport != TransportMode::kTcp) hello.shm = arena.location();
  auto producer = std::make_unique<PullProducer>(std::move(options), std::move(holdings), std::move(seals),
                                                 arena.data(), std::move(hello));
  BATON_TRY(producer->listen());
  return producer;
}

}  // namespace baton::transfer
