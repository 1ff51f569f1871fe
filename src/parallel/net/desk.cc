#include "parallel/net/desk.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"

namespace baton::parallel {

namespace asio = net::asio;
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kStepTimeout = std::chrono::seconds(10);
constexpr uint32_t kHelloBytesMax = 64 * 1024;

// Long values are cut: they go into a log line.
std::string shown(const std::string& value) { return value.size() <= 400 ? value : value.substr(0, 400) + "..."; }

}  // namespace

Desk::Desk(asio::any_io_executor executor, RendezvousOptions options)
    : executor_(executor),
      options_(std::move(options)),
      seats_(static_cast<size_t>(options_.size)),
      changed_(executor) {}

Result<void> Desk::open() {
  const auto serve_guest = [this](Door::Guest guest) { return serve(std::move(guest)); };
  auto door = Door::open(executor_, options_.address, options_.port, serve_guest);
  if (!door && door.error().code() == Code::kInvalidArgument && !options_.listen_host.empty()) {
    door = Door::open(executor_, options_.listen_host, options_.port, serve_guest);
  }
  if (!door && door.error().code() == Code::kInvalidArgument) {
    return fail(Code::kInvalidArgument, "{}: rank 0 must listen there; give an address of this host",
                door.error().message());
  }
  if (!door) return fail(std::move(door.error()));
  door_ = std::move(*door);
  door_->start();
  return {};
}

std::string Desk::name_of(int rank) {
  const auto& place = seat(rank).place;
  return fmt::format("process {} ({})", rank, net::format_host_port(place.host, place.port));
}

std::vector<int> Desk::waited_for() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < options_.size; ++rank) {
    const Seat& each = seats_[static_cast<size_t>(rank)];
    if (phase_ == Phase::kGathering ? each.guest == nullptr : !each.ready) ranks.push_back(rank);
  }
  return ranks;
}

net::Task<Result<MeetingTable>> Desk::gather(MeetingTable::Place own, TimePoint deadline) {
  seat(0).place = std::move(own);
  while (!waited_for().empty()) {
    if (SteadyClock().now() >= deadline) {
      const auto missing = waited_for();
      const Status status(
          Code::kDeadlineExceeded,
          fmt::format("{} of {} processes came to {} within {:.3g} s; missing: rank {}",
                      options_.size - static_cast<int>(missing.size()), options_.size,
                      net::format_host_port(options_.address, options_.port),
                      std::chrono::duration<double>(options_.deadline).count(), fmt::join(missing, ", ")));
      co_await abort(status);
      co_return fail(status);
    }
    changed_.expires_at(deadline);
    co_await changed_.async_wait(kAwait);
  }
  phase_ = Phase::kLinking;
  MeetingTable table;
  BATON_CO_TRY_ASSIGN(table.cookie, random_bytes(32));
  for (const auto& each : seats_) table.places.push_back(each.place);
  co_await tell_all(FrameKind::kTable, table.encode());
  co_return table;
}

net::Task<Result<void>> Desk::conclude(TimePoint deadline) {
  while (!trouble_ && !waited_for().empty()) {
    if (SteadyClock().now() >= deadline) {
      trouble_ = Status(Code::kDeadlineExceeded,
                        fmt::format("{} did not connect to the others in time", name_of(waited_for().front())));
      break;
    }
    changed_.expires_at(deadline);
    co_await changed_.async_wait(kAwait);
  }
  if (trouble_) {
    const Status status = *trouble_;
    co_await abort(status);
    co_return fail(status);
  }
  phase_ = Phase::kRunning;
  co_await tell_all(FrameKind::kGo, {});
  co_return Result<void>{};
}

net::Task<void> Desk::abort(const Status& status) {
  phase_ = Phase::kOver;
  co_await tell_all(FrameKind::kAborted, Reason{.code = status.code(), .message = status.message()}.encode());
}

net::Task<void> Desk::tell_all(FrameKind kind, std::vector<std::byte> body) {
  for (int rank = 1; rank < options_.size; ++rank) {
    const Door::Guest guest = seat(rank).guest;
    if (guest == nullptr) continue;
    // One that has gone is found by the coroutine that listens to it.
    static_cast<void>(co_await write_frame(*guest, kind, body, kStepTimeout));
  }
}

net::Task<void> Desk::serve(Door::Guest guest) {
  const GreetingKey key{.place = GreetingPlace::kDesk, .secret = options_.secret, .cookie = {}};
  const std::string peer = guest->peer();
  if (const auto greeted = co_await greet_as_host(*guest, key, kStepTimeout); !greeted) {
    log_debug("mesh: {} was not let in: {}", peer, log_quoted(greeted.error().message()));
    co_return;
  }
  const auto frame = co_await read_frame(*guest, kStepTimeout, kHelloBytesMax);
  if (!frame || frame->kind != FrameKind::kHello) co_return;
  const auto hello = Hello::decode(frame->body);
  if (!hello) co_return;
  door_->known(guest);
  if (const auto reason = refusal(*hello, peer)) {
    log_warning("mesh group={} refused rank={} peer={} reason={}", options_.group, hello->rank, peer,
                log_quoted(reason->message));
    static_cast<void>(co_await write_frame(*guest, FrameKind::kRefused, reason->encode(), kStepTimeout));
    co_return;
  }
  seat(hello->rank) = {.guest = guest, .place = {.host = hello->host, .port = hello->port}, .ready = false};
  changed_.cancel();
  co_await listen_to(hello->rank, guest);
}

std::optional<Reason> Desk::refusal(const Hello& hello, const std::string& peer) {
  const std::string who = fmt::format("process {} at {}", hello.rank, peer);
  const auto differs = [&](std::string_view what, const std::string& theirs, const std::string& ours) {
    return Reason{.code = Code::kMismatch,
                  .message = fmt::format("{}: {} has '{}', rank 0 has '{}'", what, who, shown(theirs), shown(ours))};
  };
  if (hello.group != options_.group) return differs("group", hello.group, options_.group);
  if (hello.size != options_.size) {
    return differs("number of processes", std::to_string(hello.size), std::to_string(options_.size));
  }
  if (hello.fingerprint != options_.fingerprint) {
    return differs("model and grid", hello.fingerprint, options_.fingerprint);
  }
  if (hello.rank < 1 || hello.rank >= options_.size) {
    return Reason{.code = Code::kInvalidArgument,
                  .message = fmt::format("rank {}: ranks 1 to {} come to rank 0", hello.rank, options_.size - 1)};
  }
  return phase_refusal(hello);
}

std::optional<Reason> Desk::phase_refusal(const Hello& hello) {
  const bool over = phase_ == Phase::kOver || (group_failure_ && group_failure_());
  if (over) {
    return Reason{.code = Code::kUnavailable, .try_again = true, .message = "the former group is just ending"};
  }
  if (phase_ == Phase::kRunning) {
    return Reason{.code = Code::kFailedPrecondition,
                  .message = fmt::format("the group runs, with {}: a member can't join or come back before all have "
                                         "ended it and meet again",
                                         name_of(hello.rank))};
  }
  if (phase_ == Phase::kLinking || seat(hello.rank).guest != nullptr) {
    return Reason{.code = Code::kFailedPrecondition,
                  .message = fmt::format("rank {} is there already: {}; give each process its own rank", hello.rank,
                                         name_of(hello.rank))};
  }
  return {};
}

net::Task<void> Desk::listen_to(int rank, Door::Guest guest) {
  while (true) {
    const auto frame = co_await read_frame(*guest, net::kNoTimeout, kHelloBytesMax);
    if (!frame) {
      gone(rank, guest);
      co_return;
    }
    if (frame->kind == FrameKind::kReady && phase_ == Phase::kLinking) {
      seat(rank).ready = true;
      changed_.cancel();
    }
    if (frame->kind == FrameKind::kFailed) {
      const auto reason = Reason::decode(frame->body);
      trouble(Status(Code::kUnavailable, reason ? reason->message : name_of(rank) + " failed"));
    }
  }
}

void Desk::gone(int rank, const Door::Guest& guest) {
  Seat& left = seat(rank);
  if (left.guest != guest) return;
  if (phase_ == Phase::kLinking) {
    trouble(Status(Code::kUnavailable, fmt::format("{} has gone during the meeting", name_of(rank))));
  }
  if (phase_ == Phase::kRunning) {
    left.guest = nullptr;
    return;
  }
  // While others are still awaited it may come again.
  left = {};
  changed_.cancel();
}

void Desk::trouble(const Status& status) {
  if (trouble_ || phase_ != Phase::kLinking) return;
  trouble_ = status;
  changed_.cancel();
  if (on_trouble_) on_trouble_(status);
}

void Desk::close() {
  if (door_) door_->close();
  changed_.cancel();
}

}  // namespace baton::parallel
