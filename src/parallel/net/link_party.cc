#include "parallel/net/link_party.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace baton::parallel {

namespace asio = net::asio;
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kStepTimeout = std::chrono::seconds(10);

}  // namespace

LinkParty::LinkParty(asio::any_io_executor executor, Options options)
    : executor_(executor), options_(std::move(options)), changed_(executor), sockets_(kLaneKinds) {
  for (auto& lane : sockets_) lane.resize(static_cast<size_t>(options_.size));
}

Result<void> LinkParty::open() {
  auto door = Door::open(executor_, options_.host, 0, [this](Door::Guest guest) { return serve(std::move(guest)); });
  if (!door) return fail(door.error().with_context("own address for the other members"));
  door_ = std::move(*door);
  return {};
}

GreetingKey LinkParty::key() const {
  return {.place = GreetingPlace::kMember, .secret = options_.secret, .cookie = table_.cookie};
}

std::string LinkParty::name_of(int process) const {
  const auto& place = table_.places[static_cast<size_t>(process)];
  return fmt::format("process {} ({})", process,
                     net::format_host_port(place.host.empty() ? options_.main_address : place.host, place.port));
}

net::Task<Result<void>> LinkParty::link(const MeetingTable& table, TimePoint deadline) {
  table_ = table;
  deadline_ = deadline;
  door_->start();
  for (int process = 0; process < options_.rank; ++process) {
    for (int lane = 0; lane < kLaneKinds; ++lane) {
      asio::co_spawn(executor_, dial(process, static_cast<LaneKind>(lane)), asio::detached);
    }
  }
  while (!complete() && !failure_) {
    if (SteadyClock().now() >= deadline) {
      co_return fail(Code::kDeadlineExceeded, "no connection with {} in time", missing());
    }
    changed_.expires_at(deadline);
    co_await changed_.async_wait(kAwait);
  }
  if (failure_) co_return fail(*failure_);
  co_return Result<void>{};
}

void LinkParty::cancel(const Status& status) {
  if (!failure_) failure_ = status;
  changed_.cancel();
}

bool LinkParty::complete() const { return missing().empty(); }

std::string LinkParty::missing() const {
  for (const auto& lane : sockets_) {
    for (size_t p = 0; p < lane.size(); ++p) {
      if (static_cast<int>(p) != options_.rank && !lane[p].open()) return name_of(static_cast<int>(p));
    }
  }
  return {};
}

net::Task<void> LinkParty::serve(Door::Guest guest) {
  if (!co_await greet_as_host(*guest, key(), kStepTimeout)) co_return;
  const auto frame = co_await read_frame(*guest, kStepTimeout, 64);
  if (!frame || frame->kind != FrameKind::kLane) co_return;
  const auto hello = LaneHello::decode(frame->body);
  if (!hello || hello->rank <= options_.rank || hello->rank >= options_.size) co_return;
  if (!co_await write_frame(*guest, FrameKind::kLaneTaken, {}, kStepTimeout)) co_return;
  place(hello->lane, hello->rank) = Descriptor(guest->release());
  changed_.cancel();
}

net::Task<void> LinkParty::dial(int process, LaneKind lane) {
  Duration pause = std::chrono::milliseconds(50);
  while (!closed_ && !failure_) {
    const auto done = co_await dial_once(process, lane);
    if (done || closed_) break;
    const bool hopeless = done.error().code() == Code::kUnauthenticated || done.error().code() == Code::kMismatch ||
                          done.error().code() == Code::kInvalidArgument;
    if (hopeless || SteadyClock().now() + pause >= deadline_) {
      cancel(Status(Code::kUnavailable, fmt::format("process {} can't reach {}: {}", options_.rank, name_of(process),
                                                    done.error().message())));
      co_return;
    }
    asio::steady_timer timer(executor_, pause);
    co_await timer.async_wait(kAwait);
    pause = std::min<Duration>(2 * pause, std::chrono::seconds(1));
  }
  changed_.cancel();
}

net::Task<Result<void>> LinkParty::dial_once(int process, LaneKind lane) {
  const auto& there = table_.places[static_cast<size_t>(process)];
  const std::string host = there.host.empty() ? options_.main_address : there.host;
  const Duration left = std::min<Duration>(deadline_ - SteadyClock().now(), kStepTimeout);
  BATON_CO_TRY_ASSIGN(auto stream, co_await net::connect({.host = host, .port = there.port, .timeout = left}));
  BATON_CO_TRY(co_await greet_as_guest(*stream, key(), kStepTimeout));
  const auto hello = LaneHello{.rank = options_.rank, .lane = lane}.encode();
  BATON_CO_TRY(co_await write_frame(*stream, FrameKind::kLane, hello, kStepTimeout));
  BATON_CO_TRY_ASSIGN(const auto answer, co_await read_frame(*stream, kStepTimeout, 64));
  if (answer.kind != FrameKind::kLaneTaken) co_return fail(Code::kDataLoss, "an answer that is none");
  place(lane, process) = Descriptor(stream->release());
  co_return Result<void>{};
}

std::vector<Descriptor> LinkParty::take(LaneKind lane) { return std::move(sockets_[static_cast<size_t>(lane)]); }

void LinkParty::close() {
  closed_ = true;
  cancel(Status(Code::kCancelled, "the meeting is over"));
  if (door_) door_->close();
}

}  // namespace baton::parallel
