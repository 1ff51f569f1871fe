#include "parallel/net/meeting.h"

#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "parallel/net/desk.h"
#include "parallel/net/link_party.h"

namespace baton::parallel {

namespace asio = net::asio;
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kStepTimeout = std::chrono::seconds(10);
// A former rank 0 that is just ending may still hold the port.
constexpr Duration kPortPatience = std::chrono::seconds(2);

// The address by which a connected socket leaves this host.
std::string own_address(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST];
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return host;
}

bool is_any_address(const std::string& host) { return host == "0.0.0.0" || host == "::" || host == "[::]"; }

class Meeting {
 public:
  explicit Meeting(RendezvousOptions options)
      : options_(std::move(options)), deadline_(mesh_deadline(options_.deadline)), changed_(context_) {}
  ~Meeting() {
    if (party_) party_->close();
    if (desk_) desk_->close();
    if (desk_stream_) desk_stream_->close();
    // What is still under way ends now; a connection attempt that doesn't is left to the context's own end.
    context_.restart();
    context_.run_for(std::chrono::milliseconds(500));
  }

  Result<void> run() {
    std::optional<Result<void>> done;
    asio::co_spawn(context_, conduct(done), asio::detached);
    while (!done && context_.run_one() > 0) {
    }
    return done ? *done : fail(Code::kInternal, "a meeting ended by itself");
  }

  MeetingResult take() {
    MeetingResult result;
    for (int p = 0; p < options_.size; ++p) {
      const auto& place = table_.places[static_cast<size_t>(p)];
      const std::string host = place.host.empty() ? options_.address : place.host;
      result.members.push_back({.rank = p, .address = net::format_host_port(host, place.port)});
    }
    result.control = party_->take(LaneKind::kControl);
    result.exchange = party_->take(LaneKind::kExchange);
    result.messages = party_->take(LaneKind::kMessages);
    return result;
  }

  // For the time after: the desk of rank 0 alone goes on.
  asio::io_context& context() { return context_; }
  Desk* desk() { return desk_.get(); }
  void end_party() { party_->close(); }

 private:
  net::Task<void> conduct(std::optional<Result<void>>& done) {
    done = options_.rank == 0 ? co_await host() : co_await attend();
  }

  net::Task<Result<void>> host() {
    BATON_CO_TRY(co_await open_desk());
    const std::string own = options_.listen_host.empty() ? options_.address : options_.listen_host;
    BATON_CO_TRY(open_party(own));
    auto table = co_await desk_->gather({.host = is_any_address(own) ? "" : own, .port = party_->port()}, deadline_);
    if (!table) co_return fail(table.error());
    table_ = *table;
    desk_->on_trouble([this](const Status& status) { party_->cancel(status); });
    if (const auto linked = co_await party_->link(table_, deadline_); !linked) {
      co_await desk_->abort(linked.error());
      co_return fail(linked.error());
    }
    co_return co_await desk_->conclude(deadline_);
  }

  net::Task<Result<void>> open_desk() {
    const TimePoint patience = std::min(deadline_, mesh_deadline(kPortPatience));
    while (true) {
      desk_ = std::make_unique<Desk>(context_.get_executor(), options_);
      const auto opened = desk_->open();
      if (opened || opened.error().code() != Code::kAlreadyExists || SteadyClock().now() >= patience) co_return opened;
      co_await sleep(std::chrono::milliseconds(100));
    }
  }

  Result<void> open_party(const std::string& host) {
    party_ = std::make_unique<LinkParty>(context_.get_executor(), LinkParty::Options{.rank = options_.rank,
                                                                                     .size = options_.size,
                                                                                     .secret = options_.secret,
                                                                                     .host = host,
                                                                                     .main_address = options_.address});
    return party_->open();
  }

  // Goes to the desk until it is let in, or for good turned away.
  net::Task<Result<void>> attend() {
    Duration pause = std::chrono::milliseconds(50);
    while (true) {
      bool try_again = true;
      const auto done = co_await attend_once(try_again);
      if (done || !try_again) co_return done;
      if (SteadyClock().now() + pause >= deadline_) {
        co_return fail(Code::kDeadlineExceeded, "rank 0 was not met at {} within {:.3g} s: {}",
                       net::format_host_port(options_.address, options_.port),
                       std::chrono::duration<double>(options_.deadline).count(), done.error().message());
      }
      co_await sleep(pause);
      pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(500));
    }
  }

  net::Task<Result<void>> attend_once(bool& try_again) {
    BATON_CO_TRY(co_await knock(try_again));
    BATON_CO_TRY_ASSIGN(const Frame first, co_await wait_for_table());
    if (first.kind != FrameKind::kTable) {
      BATON_CO_TRY_ASSIGN(const Reason reason, Reason::decode(first.body));
      try_again = first.kind == FrameKind::kRefused && reason.try_again;
      co_return fail(reason.code, "{}", reason.message);
    }
    try_again = false;
    BATON_CO_TRY_ASSIGN(table_, MeetingTable::decode(first.body));
    if (static_cast<int>(table_.places.size()) != options_.size) {
      co_return fail(Code::kDataLoss, "rank 0 told of {} processes", table_.places.size());
    }
    co_return co_await join();
  }

  // Connects and says who we are.
  net::Task<Result<void>> knock(bool& try_again) {
    const Duration left = std::min<Duration>(deadline_ - SteadyClock().now(), kStepTimeout);
    auto stream = co_await net::connect({.host = options_.address, .port = options_.port, .timeout = left});
    if (!stream) {
      try_again = stream.error().code() != Code::kInvalidArgument;
      co_return fail(stream.error());
    }
    desk_stream_ = std::move(*stream);
    const GreetingKey key{.place = GreetingPlace::kDesk, .secret = options_.secret, .cookie = {}};
    if (const auto greeted = co_await greet_as_guest(*desk_stream_, key, kStepTimeout); !greeted) {
      const Code code = greeted.error().code();
      try_again = code != Code::kUnauthenticated && code != Code::kMismatch && code != Code::kDataLoss;
      co_return fail(greeted.error());
    }
    std::string own = options_.listen_host;
    if (own.empty()) own = own_address(desk_stream_->descriptor());
    if (const auto opened = open_party(own); !opened) {
      try_again = false;
      co_return fail(opened.error());
    }
    const auto hello = Hello{.group = options_.group,
                             .fingerprint = options_.fingerprint,
                             .rank = options_.rank,
                             .size = options_.size,
                             .host = own,
                             .port = party_->port()}
                           .encode();
    co_return co_await write_frame(*desk_stream_, FrameKind::kHello, hello, kStepTimeout);
  }

  net::Task<Result<Frame>> wait_for_table() {
    // Rank 0 has the same deadline and says why it gives up: a little later than ours.
    const Duration left = deadline_ - SteadyClock().now() + std::chrono::seconds(1);
    BATON_CO_TRY_ASSIGN(Frame frame, co_await read_frame(*desk_stream_, left));
    const bool known =
        frame.kind == FrameKind::kTable || frame.kind == FrameKind::kRefused || frame.kind == FrameKind::kAborted;
    if (!known) co_return fail(Code::kDataLoss, "rank 0 answers what can't be understood");
    co_return frame;
  }

  // Connects to all others while the desk may call it off.
  net::Task<Result<void>> join() {
    asio::co_spawn(context_, hear_verdict(), asio::detached);
    const auto linked = co_await party_->link(table_, deadline_);
    if (verdict_) co_return *verdict_;
    const FrameKind kind = linked ? FrameKind::kReady : FrameKind::kFailed;
    const auto body = linked ? std::vector<std::byte>()
                             : Reason{.code = linked.error().code(), .message = linked.error().message()}.encode();
    BATON_CO_TRY(co_await write_frame(*desk_stream_, kind, body, kStepTimeout));
    const TimePoint until = linked ? mesh_deadline(deadline_ - SteadyClock().now() + std::chrono::seconds(1))
                                   : mesh_deadline(std::chrono::seconds(2));
    while (!verdict_ && SteadyClock().now() < until) {
      changed_.expires_at(until);
      co_await changed_.async_wait(kAwait);
    }
    if (verdict_) co_return *verdict_;
    if (!linked) co_return linked;
    co_return fail(Code::kDeadlineExceeded, "rank 0 did not say that all are ready");
  }

  net::Task<void> hear_verdict() {
    const auto frame = co_await read_frame(*desk_stream_, net::kNoTimeout);
    if (frame && frame->kind == FrameKind::kGo) {
      verdict_ = Result<void>{};
    } else if (frame && frame->kind == FrameKind::kAborted) {
      const auto reason = Reason::decode(frame->body);
      verdict_ = reason ? fail(reason->code, "{}", reason->message) : fail(reason.error());
    } else {
      verdict_ = fail(Code::kUnavailable, "rank 0 has gone during the meeting");
    }
    changed_.cancel();
    if (!*verdict_) party_->cancel(verdict_->error());
  }

  net::Task<void> sleep(Duration time) {
    asio::steady_timer timer(context_, time);
    co_await timer.async_wait(kAwait);
  }

  const RendezvousOptions options_;
  const TimePoint deadline_;
  asio::io_context context_{1};
  asio::steady_timer changed_;
  std::unique_ptr<Desk> desk_;
  std::unique_ptr<net::Stream> desk_stream_;
  std::unique_ptr<LinkParty> party_;
  MeetingTable table_;
  std::optional<Result<void>> verdict_;
};

// Rank 0's desk while the group runs, on a thread of its own.
class RunningDesk final : public MeshCompanion {
 public:
  explicit RunningDesk(std::unique_ptr<Meeting> meeting)
      : meeting_(std::move(meeting)), guard_(asio::make_work_guard(meeting_->context())) {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "mesh-desk");
      meeting_->context().run();
    });
  }
  ~RunningDesk() override {
    meeting_->context().stop();
    thread_.join();
  }
  void attach(std::function<std::optional<Status>()> failure) override {
    asio::post(meeting_->context(), [this, failure = std::move(failure)] { meeting_->desk()->set_group(failure); });
  }

 private:
  std::unique_ptr<Meeting> meeting_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  std::thread thread_;
};

}  // namespace

Result<MeetingResult> hold_meeting(const RendezvousOptions& options) {
  auto meeting = std::make_unique<Meeting>(options);
  BATON_TRY(meeting->run());
  MeetingResult result = meeting->take();
  if (options.rank == 0) {
    meeting->end_party();
    result.desk = std::make_unique<RunningDesk>(std::move(meeting));
  }
  return result;
}

}  // namespace baton::parallel
