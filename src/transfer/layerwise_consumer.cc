// D's end of the layerwise connector: grants, with a listening socket and a thread that copies.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "transfer/handoff_port.h"
#include "transfer/live_grants.h"
#include "transfer/pull_options.h"
#include "transfer/push_frames.h"
#include "transport/tcp/frame_channel.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;
constexpr Duration kGreetTimeout = seconds(5);
constexpr Duration kWriteTimeout = seconds(10);
constexpr Duration kShutdownGrace = std::chrono::milliseconds(500);

Counter refusals(MetricRegistry* registry) {
  if (registry == nullptr) return {};
  return registry->counter("baton_handoff_refused_connections_total",
                           "Connections to the hand-off port without secret, protocol or matching identity.");
}

class LayerwiseConsumer final : public KvConsumer {
 public:
  LayerwiseConsumer(PullConnectorOptions options, std::shared_ptr<const Holdings> holdings, std::span<std::byte> arena,
                    CallMetaserver call, LayerwiseTimeouts timeouts);
  ~LayerwiseConsumer() override;
  Result<void> listen();

  void start(Pull pull) override;
  void cancel(const std::string& request_id) override {
    asio::post(io_, [this, request_id] { grants_.cancel(request_id); });
  }
  // P has not been asked yet.
  void decline(const wire::KvTransferParams&) override {}
  std::vector<PullResult> poll_completed() override {
    std::lock_guard lock(mutex_);
    return std::exchange(completed_, {});
  }

 private:
  using Channel = std::shared_ptr<transport::FrameChannel>;

  // All below runs on thread_.
  void deliver(PullResult result);
  void arm_timer();
  net::Task<void> serve(std::unique_ptr<net::Stream> stream);
  net::Task<Result<wire::EngineIdentity>> greet(transport::FrameChannel& channel);
  net::Task<Result<void>> receive(uint64_t connection, transport::FrameChannel& channel,
                                  const wire::EngineIdentity& writer, uint64_t& grant);

  PullConnectorOptions options_;
  const std::shared_ptr<const Holdings> holdings_;
  const LayerwiseTimeouts timeouts_;
  Counter refused_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  asio::steady_timer timer_;
  std::optional<TimePoint> armed_;
  LiveGrants grants_;
  HandoffPort port_;
  std::map<uint64_t, Channel> channels_;
  uint64_t next_connection_ = 1;
  bool stopping_ = false;

  std::mutex mutex_;
  std::vector<PullResult> completed_;
  std::thread thread_;
};

LayerwiseConsumer::LayerwiseConsumer(PullConnectorOptions options, std::shared_ptr<const Holdings> holdings,
                                     std::span<std::byte> arena, CallMetaserver call, LayerwiseTimeouts timeouts)
    : options_(std::move(options)),
      holdings_(std::move(holdings)),
      timeouts_(timeouts),
      refused_(refusals(options_.metrics)),
      timer_(io_),
      grants_(options_, holdings_, arena, timeouts,
              {.call = std::move(call),
               .post =
                   [this](std::function<void()> work) {
                     asio::post(io_, [this, work = std::move(work)] {
                       if (!stopping_) work();
                     });
                   },
               .finished = [this](PullResult result) { deliver(std::move(result)); },
               .deadlines_changed = [this] { arm_timer(); }}),
      port_(
          io_, options_, [this] { return channels_.size(); },
          [this](std::unique_ptr<net::Stream> stream) { return serve(std::move(stream)); }, refused_) {}

Result<void> LayerwiseConsumer::listen() {
  BATON_TRY(port_.listen());
  thread_ = std::thread([this] { io_.run(); });
  return {};
}

LayerwiseConsumer::~LayerwiseConsumer() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    stopping_ = true;
    port_.close();
    for (const auto& [id, channel] : channels_) channel->close();
    work_.reset();
    timer_.expires_after(kShutdownGrace);
    timer_.async_wait([this](auto error) {
      if (!error) io_.stop();
    });
    if (channels_.empty()) timer_.cancel();
  });
  thread_.join();
}

void LayerwiseConsumer::start(Pull pull) {
  for (const BlockId block : pull.blocks) {
    BATON_CHECK(block.value >= 0 && block.value < holdings_->block_count, "block={}", block);
  }
  const auto slot = pull.state_slot.value_or(0);
  BATON_CHECK(!pull.state_slot || (slot >= 0 && slot < holdings_->slot_count), "slot={}", slot);
  asio::post(io_, [this, pull = std::move(pull)]() mutable { grants_.begin(std::move(pull), port_.port()); });
}

void LayerwiseConsumer::deliver(PullResult result) {
  {
    std::lock_guard lock(mutex_);
    completed_.push_back(std::move(result));
  }
  if (options_.wake) options_.wake();
}

void LayerwiseConsumer::arm_timer() {
  const auto next = grants_.next_deadline();
  if (!next || stopping_ || (armed_ && *armed_ <= *next)) return;
  armed_ = next;
  timer_.expires_at(*next);
  timer_.async_wait([this](auto error) {
    if (error) return;
    armed_.reset();
    grants_.tick();
    arm_timer();
  });
}

net::Task<void> LayerwiseConsumer::serve(std::unique_ptr<net::Stream> stream) {
  const uint64_t connection = next_connection_++;
  const auto channel = std::make_shared<transport::FrameChannel>(std::move(stream), /*payload_bytes_max=*/0);
  channels_[connection] = channel;
  uint64_t grant = 0;
  Result<void> ended;
  if (const auto writer = co_await greet(*channel)) {
    ended = co_await receive(connection, *channel, *writer, grant);
  } else {
    ended = fail(writer.error());
    refused_.add();
    log_debug("event=handoff_refused peer={} reason=\"{}\"", channel->stream().peer(), writer.error().message());
  }
  if (!ended && !stopping_) {
    const Status why = ended.error();
    grants_.lose(connection, grant, why);
    (void)co_await channel->write(wire::ErrorReply{0, grant, why.code(), why.message()}, {}, kWriteTimeout);
  }
  channel->close();
  channels_.erase(connection);
  if (stopping_ && channels_.empty()) timer_.cancel();
}

// Who writes. Frames are about a megabyte, or one entry of one of P's blocks.
net::Task<Result<wire::EngineIdentity>> LayerwiseConsumer::greet(transport::FrameChannel& channel) {
  BATON_CO_TRY_ASSIGN(auto frame,
                      co_await channel.read({.start = kGreetTimeout, .body_bytes_max = wire::kFirstBodyBytesMax}));
  auto* const hello = std::get_if<wire::Hello>(&frame.message);
  if (hello == nullptr) co_return fail(Code::kFailedPrecondition, "the first message must be Hello");
  const auto& layout = hello->identity.layout;
  auto agreed = wire::compare_identity(options_.identity, hello->identity, options_.allow);
  if (agreed) agreed = wire::check_claim(options_.peer_claim, layout.grid, "prefill engine");
  if (!agreed) co_return fail(agreed.error().with_context("decode engine refuses the hand-off"));
  BATON_CO_TRY_ASSIGN(const auto theirs, holdings_of(layout, 0, 0));
  int64_t payload_max = kPushFrameBytes;
  for (const auto& rank : theirs.ranks) {
    payload_max = std::max({payload_max, largest_entry(rank.layout.blocks), largest_entry(rank.layout.states)});
  }
  channel.allow_payload(static_cast<uint32_t>(std::min<int64_t>(payload_max, wire::kPayloadBytesMax)));
  const wire::HelloReply reply{.identity = options_.identity,
                               .block_count = holdings_->block_count,
                               .slot_count = holdings_->slot_count,
                               .shm = {},
                               .members = {}};
  BATON_CO_TRY(co_await channel.write(reply, {}, kGreetTimeout));
  co_return std::move(hello->identity);
}

// Until the push has ended, well or not, or what came was wrong.
net::Task<Result<void>> LayerwiseConsumer::receive(uint64_t connection, transport::FrameChannel& channel,
                                                   const wire::EngineIdentity& writer, uint64_t& grant) {
  BATON_CO_TRY_ASSIGN(const auto first, co_await channel.read({.start = kGreetTimeout}));
  const auto* opening = std::get_if<wire::PushOpen>(&first.message);
  if (opening == nullptr) co_return fail(Code::kFailedPrecondition, "a push begins with PushOpen");
  grant = opening->grant_id;
  BATON_CO_TRY_ASSIGN(const auto answer, grants_.open(connection, *opening, writer));
  BATON_CO_TRY(co_await channel.write(answer, {}, kWriteTimeout));
  while (true) {
    BATON_CO_TRY_ASSIGN(const auto frame, co_await channel.read({.start = timeouts_.prefill}));
    if (stopping_) co_return fail(Code::kCancelled, "shutting down");
    if (const auto* data = std::get_if<wire::PushData>(&frame.message)) {
      BATON_CO_TRY(grants_.store(connection, *data, frame.payload));
    } else if (const auto* end = std::get_if<wire::PushEnd>(&frame.message)) {
      BATON_CO_TRY_ASSIGN(const auto ended, grants_.end(connection, *end));
      co_return co_await channel.write(ended, {}, kWriteTimeout);
    } else {
      co_return fail(Code::kFailedPrecondition, "a push goes on with PushData and PushEnd");
    }
  }
}

}  // namespace

Result<std::unique_ptr<KvConsumer>> make_layerwise_consumer(PullConnectorOptions options, std::span<std::byte> arena,
                                                            CallMetaserver call, LayerwiseTimeouts timeouts) {
  BATON_TRY_ASSIGN(auto holdings, complete_consumer_options(options, arena));
  auto consumer =
      std::make_unique<LayerwiseConsumer>(std::move(options), std::move(holdings), arena, std::move(call), timeouts);
  BATON_TRY(consumer->listen());
  return consumer;
}

}  // namespace baton::transfer
