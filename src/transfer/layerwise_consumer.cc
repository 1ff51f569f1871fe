// D's end of the layerwise connector: grants with a listening socket and a thread that copies.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "transfer/layerwise_connector.h"
#include "transfer/layerwise_grant.h"
#include "transfer/layerwise_units.h"
#include "transfer/pull_options.h"
#include "transport/shm/shm_mover.h"
#include "transport/tcp/auth.h"
#include "transport/tcp/frame_channel.h"

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kGreetTimeout = seconds(5);
constexpr Duration kWriteTimeout = seconds(10);
constexpr Duration kShutdownGrace = std::chrono::milliseconds(500);

struct ConsumerMetrics {
  Histogram transfer_seconds, bytes;
  Counter failed, checksum_failures, received_bytes, refused;
  explicit ConsumerMetrics(MetricRegistry* registry) {
    if (registry == nullptr) return;
    transfer_seconds =
        registry->histogram("vllm:mooncake_xfer_time_seconds", "Time of a KV transfer, from start to verified.",
                            {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120});
    bytes = registry->histogram("vllm:mooncake_bytes_transferred", "Bytes of a KV transfer.",
                                {1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11});
    failed = registry->counter("vllm:mooncake_num_failed_transfers", "KV transfers that failed.");
    checksum_failures = registry->counter("baton_handoff_checksum_failures_total",
                                          "KV blocks or frames whose checksum failed; none was used.");
    received_bytes =
        registry->counter("baton_handoff_received_bytes_total", "Verified KV bytes received.", {{"transport", "push"}});
    refused = registry->counter("baton_handoff_refused_connections_total",
                                "Connections to the hand-off port without secret, protocol or matching identity.");
  }
};

// The id that the client's proxy knows: without the engine's own ends (the choice, and the number of the transfer).
std::string external_id(const std::string& transfer_id) {
  const std::string engine_id = transfer_id.substr(0, transfer_id.rfind('-'));
  return engine_id.starts_with("chatcmpl-") ? engine_id.substr(0, engine_id.rfind('-')) : engine_id;
}

class LayerwiseConsumer final : public KvConsumer {
 public:
  LayerwiseConsumer(PullConnectorOptions options, std::span<std::byte> arena, CallMetaserver call,
                    LayerwiseTimeouts timeouts)
      : options_(std::move(options)),
        layout_(options_.ranks.front().layout),
        tls_(tls_options(options_.tls)),
        arena_(arena),
        call_(std::move(call)),
        timeouts_(timeouts),
        metrics_(options_.metrics),
        timer_(io_) {}
  ~LayerwiseConsumer() override;
  Result<void> listen();

  void start(Pull pull) override {
    asio::post(io_, [this, pull = std::move(pull)]() mutable { begin(std::move(pull)); });
  }
  void cancel(const std::string& request_id) override {
    asio::post(io_, [this, request_id] {
      const auto found = names_.find(request_id);
      if (found != names_.end()) complete(found->second, fail(Code::kCancelled, "the push was cancelled"));
    });
  }
  // P has not been asked yet.
  void decline(const wire::KvTransferParams&) override {}
  std::vector<PullResult> poll_completed() override {
    std::lock_guard lock(mutex_);
    return std::exchange(completed_, {});
  }

 private:
  struct Live {
    Grant grant;
    TimePoint started, deadline;
    uint64_t connection = 0;  // that writes into it; 0: none
    bool announced = false;   // the metaserver has answered: P's prefill is over
    std::optional<int32_t> last_token;
  };
  using Grants = std::map<uint64_t, Live>;

  // All below runs on thread_.
  void begin(Pull pull);
  nlohmann::json announcement(const Live& live) const;
  void on_metaserver(uint64_t id, const Result<void>& answer);
  void on_writer_gone(uint64_t connection, uint64_t id, const Status& why);
  void complete(uint64_t id, Result<void> outcome);
  void finish(PullResult result);
  void arm_timer();
  net::Task<void> accept_loop();
  net::Task<void> serve(uint64_t connection, std::shared_ptr<transport::FrameChannel> channel);
  net::Task<Result<void>> greet(transport::FrameChannel& channel);
  net::Task<Result<void>> receive(uint64_t connection, transport::FrameChannel& channel, uint64_t& grant);
  Result<wire::PushOpenReply> open(uint64_t connection, const wire::PushOpen& open);
  Result<void> store(uint64_t connection, const wire::PushData& data, std::span<const std::byte> payload);
  Result<Live*> claimed(uint64_t connection, uint64_t id);
  TimePoint now() const { return clock_.now(); }

  PullConnectorOptions options_;
  const kv::CacheLayout layout_;
  net::TlsOptions tls_;
  std::span<std::byte> arena_;
  const CallMetaserver call_;
  const LayerwiseTimeouts timeouts_;
  ConsumerMetrics metrics_;
  SteadyClock clock_;
  transport::ShmMover mover_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  asio::steady_timer timer_;
  std::optional<TimePoint> armed_;
  std::unique_ptr<net::Listener> listener_;
  std::map<uint64_t, std::shared_ptr<transport::FrameChannel>> channels_;
  uint64_t next_connection_ = 1;
  Grants grants_;
  std::map<std::string, uint64_t> names_;  // grants by request
  bool stopping_ = false;
  int port_ = 0;

  std::mutex mutex_;
  std::vector<PullResult> completed_;
  std::thread thread_;
};

Result<void> LayerwiseConsumer::listen() {
  BATON_TRY_ASSIGN(listener_, net::listen(io_.get_executor(), {.host = options_.host,
                                                               .port = options_.port,
                                                               .tls = options_.tls.enabled() ? &tls_ : nullptr}));
  port_ = listener_->port();
  asio::co_spawn(io_, [this] { return accept_loop(); }, asio::detached);
  thread_ = std::thread([this] { io_.run(); });
  return {};
}

LayerwiseConsumer::~LayerwiseConsumer() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    stopping_ = true;
    listener_->close();
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

void LayerwiseConsumer::begin(Pull pull) {
  if (pull.params.metaserver.empty() || names_.contains(pull.request_id)) {
    return finish({.request_id = pull.request_id,
                   .valid_tokens = std::min(pull.skip_tokens, pull.token_count),
                   .outcome = fail(Code::kInvalidArgument,
                                   "kv_transfer_params need `metaserver`: the layerwise connector goes with a proxy in "
                                   "layerwise mode")});
  }
  uint64_t id = random_id();
  while (grants_.contains(id)) id = random_id();
  pull.params.baton_offer_id = id;
  names_[pull.request_id] = id;
  const TimePoint at = now();
  auto& live = grants_
                   .emplace(id, Live{.grant = Grant(std::move(pull), layout_),
                                     .started = at,
                                     .deadline = at + timeouts_.prefill,
                                     .last_token = {}})
                   .first->second;
  if (live.grant.complete()) return complete(id, {});
  arm_timer();
  call_(live.grant.pull().params.metaserver, announcement(live), [this, id](Result<void> answer) {
    asio::post(io_, [this, id, answer = std::move(answer)] { on_metaserver(id, answer); });
  });
}

// vLLM-Ascend's body, and what our engines add.
nlohmann::json LayerwiseConsumer::announcement(const Live& live) const {
  const auto& pull = live.grant.pull();
  std::vector<int32_t> blocks;
  for (const BlockId block : pull.blocks) blocks.push_back(block.value);
  wire::KvTransferParams params;
  params.do_remote_decode = true;
  params.remote_engine_id = options_.identity.engine_id;
  params.remote_host = options_.advertised_host;
  params.remote_port = port_;
  params.remote_block_ids = {blocks};
  params.baton_offer_id = pull.params.baton_offer_id;
  params.baton_seed = pull.params.baton_seed;
  auto body = params.to_json();
  body["token_ids"] = nlohmann::json::array();
  body["request_id"] = external_id(pull.request_id);
  body["remote_block_size"] = {layout_.blocks.block_size()};
  for (const char* one : {"remote_tp_size", "remote_pcp_size", "remote_dcp_size"}) body[one] = 1;
  body["remote_cached_tokens"] = pull.skip_tokens;
  return body;
}

void LayerwiseConsumer::on_metaserver(uint64_t id, const Result<void>& answer) {
  const auto found = grants_.find(id);
  if (found == grants_.end() || stopping_) return;
  if (!answer) return complete(id, fail(answer.error().with_context("metaserver")));
  // P's prefill is over: what is still to come is on its way.
  found->second.announced = true;
  found->second.deadline = now() + timeouts_.tail;
  arm_timer();
}

// While the proxy may still find another P, the grant waits for its word.
void LayerwiseConsumer::on_writer_gone(uint64_t connection, uint64_t id, const Status& why) {
  const auto found = grants_.find(id);
  if (found == grants_.end() || found->second.connection != connection) return;
  found->second.connection = 0;
  if (found->second.announced) complete(id, fail(why));
}

void LayerwiseConsumer::complete(uint64_t id, Result<void> outcome) {
  auto node = grants_.extract(id);
  auto& live = node.mapped();
  const auto& grant = live.grant;
  names_.erase(grant.pull().request_id);
  finish({.request_id = grant.pull().request_id,
          .valid_tokens = grant.valid_tokens(),
          .state_valid = grant.state_valid(),
          .bytes = grant.bytes(),
          .seconds = seconds_between(live.started, now()),
          .outcome = std::move(outcome),
          .last_token = live.last_token});
}

void LayerwiseConsumer::finish(PullResult result) {
  if (result.outcome) {
    metrics_.transfer_seconds.observe(result.seconds);
    metrics_.bytes.observe(static_cast<double>(result.bytes));
  } else if (result.outcome.error().code() != Code::kCancelled) {
    metrics_.failed.add();
    log_warning("event=kv_push_failed request={} valid_tokens={} bytes={} reason=\"{}\"", result.request_id,
                result.valid_tokens, result.bytes, result.outcome.error().to_string());
  }
  {
    std::lock_guard lock(mutex_);
    completed_.push_back(std::move(result));
  }
  if (options_.wake) options_.wake();
}

void LayerwiseConsumer::arm_timer() {
  std::optional<TimePoint> next;
  for (const auto& [id, live] : grants_) next = next ? std::min(*next, live.deadline) : live.deadline;
  if (!next || stopping_ || (armed_ && *armed_ <= *next)) return;
  armed_ = next;
  timer_.expires_at(*next);
  timer_.async_wait([this](auto error) {
    if (error) return;
    armed_.reset();
    std::vector<uint64_t> due;
    for (const auto& [id, live] : grants_) {
      if (live.deadline <= now()) due.push_back(id);
    }
    for (const auto id : due) {
      complete(id, fail(Code::kDeadlineExceeded, "the prefill engine's KV did not come in time"));
    }
    arm_timer();
  });
}

net::Task<void> LayerwiseConsumer::accept_loop() {
  while (!stopping_) {
    auto stream = co_await listener_->accept();
    if (stopping_) break;
    if (!stream) {
      if (stream.error().code() == Code::kCancelled) break;
      asio::steady_timer pause(io_, std::chrono::milliseconds(20));
      co_await pause.async_wait(kAwait);
      continue;
    }
    if (channels_.size() >= static_cast<size_t>(options_.connections_max)) {
      metrics_.refused.add();
      continue;
    }
    const auto payload_max =
        std::max<int64_t>({largest_entry(layout_.blocks), largest_entry(layout_.states), int64_t{2} << 20});
    auto channel = std::make_shared<transport::FrameChannel>(std::move(*stream), static_cast<uint32_t>(payload_max));
    const uint64_t id = next_connection_++;
    channels_[id] = channel;
    asio::co_spawn(io_, [this, id, channel] { return serve(id, channel); }, asio::detached);
  }
}

net::Task<void> LayerwiseConsumer::serve(uint64_t connection, std::shared_ptr<transport::FrameChannel> channel) {
  auto ended = co_await greet(*channel);
  if (!ended) {
    metrics_.refused.add();
    log_debug("event=handoff_refused peer={} reason=\"{}\"", channel->stream().peer(), ended.error().message());
  }
  uint64_t grant = 0;
  if (ended) ended = co_await receive(connection, *channel, grant);
  if (!ended && !stopping_) {
    const Status why = ended.error();
    (void)co_await channel->write(wire::ErrorReply{0, grant, why.code(), why.message()}, {}, kWriteTimeout);
    if (!stopping_) on_writer_gone(connection, grant, why);
  }
  channel->close();
  channels_.erase(connection);
  if (stopping_ && channels_.empty()) timer_.cancel();
}

net::Task<Result<void>> LayerwiseConsumer::greet(transport::FrameChannel& channel) {
  BATON_CO_TRY(co_await transport::authenticate_as_server(channel.stream(), options_.secret, kGreetTimeout));
  BATON_CO_TRY_ASSIGN(const auto frame,
                      co_await channel.read({.start = kGreetTimeout, .body_bytes_max = wire::kFirstBodyBytesMax}));
  const auto* hello = std::get_if<wire::Hello>(&frame.message);
  if (hello == nullptr) co_return fail(Code::kFailedPrecondition, "the first message must be Hello");
  const auto agreed = wire::compare_identity(options_.identity, hello->identity, options_.allow);
  if (agreed && !(options_.identity.layout == hello->identity.layout)) {
    co_return fail(Code::kMismatch, "the KV of both engines must have one layout for a layerwise hand-off");
  }
  if (!agreed) co_return fail(agreed.error().with_context("decode engine refuses the hand-off"));
  wire::HelloReply reply{options_.identity, layout_.block_count, layout_.slot_count, 0, std::nullopt};
  co_return co_await channel.write(reply, {}, kGreetTimeout);
}

// Until the push has ended, well or not, or what came was wrong.
net::Task<Result<void>> LayerwiseConsumer::receive(uint64_t connection, transport::FrameChannel& channel,
                                                   uint64_t& grant) {
  BATON_CO_TRY_ASSIGN(const auto first, co_await channel.read({.start = kGreetTimeout}));
  const auto* opening = std::get_if<wire::PushOpen>(&first.message);
  if (opening == nullptr) co_return fail(Code::kFailedPrecondition, "a push begins with PushOpen");
  BATON_CO_TRY_ASSIGN(const auto answer, open(connection, *opening));
  grant = opening->grant_id;
  BATON_CO_TRY(co_await channel.write(answer, {}, kWriteTimeout));
  while (true) {
    BATON_CO_TRY_ASSIGN(const auto frame, co_await channel.read({.start = timeouts_.prefill}));
    if (stopping_) co_return fail(Code::kCancelled, "shutting down");
    if (const auto* data = std::get_if<wire::PushData>(&frame.message)) {
      BATON_CO_TRY(store(connection, *data, frame.payload));
    } else if (const auto* end = std::get_if<wire::PushEnd>(&frame.message)) {
      BATON_CO_TRY_ASSIGN(Live* const live, claimed(connection, end->grant_id));
      if (!end->done) co_return fail(Code::kUnavailable, "the prefill engine has given the request up");
      live->last_token = end->last_token;
      const bool whole = live->grant.complete();
      complete(end->grant_id,
               whole ? Result<void>{} : fail(Code::kDataLoss, "the push ended before all of the KV had come"));
      co_return co_await channel.write(wire::PushEndReply{grant, whole}, {}, kWriteTimeout);
    } else {
      co_return fail(Code::kFailedPrecondition, "a push goes on with PushData and PushEnd");
    }
  }
}

// The latest one writes: the proxy asks another P only when one has failed.
Result<wire::PushOpenReply> LayerwiseConsumer::open(uint64_t connection, const wire::PushOpen& open) {
  const auto found = grants_.find(open.grant_id);
  if (open.grant_id == 0 || found == grants_.end()) {
    return fail(Code::kNotFound, "no such grant: over, cancelled, or never made");
  }
  BATON_TRY(found->second.grant.check(open));
  found->second.connection = connection;
  return found->second.grant.answer();
}

Result<LayerwiseConsumer::Live*> LayerwiseConsumer::claimed(uint64_t connection, uint64_t id) {
  const auto found = grants_.find(id);
  if (found == grants_.end() || found->second.connection != connection) {
    return fail(Code::kNotFound, "no such grant: over, cancelled, or another's");
  }
  return &found->second;
}

Result<void> LayerwiseConsumer::store(uint64_t connection, const wire::PushData& data,
                                      std::span<const std::byte> payload) {
  BATON_TRY_ASSIGN(Live* const live, claimed(connection, data.grant_id));
  const auto bytes = static_cast<int64_t>(payload.size());
  BATON_TRY_ASSIGN(const auto moves, live->grant.place(data, bytes));
  if (auto moved = mover_.move(moves, payload, arena_); !moved) {
    metrics_.checksum_failures.add();
    return fail(moved.error().with_context(fmt::format("entry {} of blocks from {}", data.entry, data.first_block)));
  }
  live->grant.stored(data, bytes);
  metrics_.received_bytes.add(static_cast<double>(bytes));
  if (live->announced) live->deadline = now() + timeouts_.tail;
  return {};
}

}  // namespace

Result<std::unique_ptr<KvConsumer>> make_layerwise_consumer(PullConnectorOptions options, std::span<std::byte> arena,
                                                            CallMetaserver call, LayerwiseTimeouts timeouts) {
  BATON_TRY(check_one_rank(options));
  BATON_TRY(complete_options(options));
  const auto& layout = options.ranks.front().layout;
  if (arena.size() < static_cast<size_t>(layout.data_bytes())) {
    return fail(Code::kInvalidArgument, "hand-off: a KV arena of {} bytes is too small for {} blocks and {} slots",
                arena.size(), layout.block_count, layout.slot_count);
  }
  auto consumer = std::make_unique<LayerwiseConsumer>(std::move(options), arena, std::move(call), timeouts);
  BATON_TRY(consumer->listen());
  return consumer;
}

}  // namespace baton::transfer
