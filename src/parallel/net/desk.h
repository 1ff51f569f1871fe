// The desk of a meeting, kept by rank 0: takes members in, tells all of all, and once the group runs turns late comers
// away with the reason.
//
// One executor; fits() and the like are its own. set_group() is for the time when the group runs.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>

#include "parallel/net/door.h"
#include "parallel/net/greeting.h"
#include "parallel/net/meeting_frames.h"
#include "parallel/rendezvous.h"

namespace baton::parallel {

class Desk {
 public:
  Desk(net::asio::any_io_executor executor, RendezvousOptions options);
  // kAlreadyExists when the port is taken, kInvalidArgument for an address that isn't of this host.
  Result<void> open();
  // Until all are there, then tells each where all are. own: where rank 0 listens for the others.
  net::Task<Result<MeetingTable>> gather(MeetingTable::Place own, TimePoint deadline);
  // Called, from the executor, when a member goes or fails while connections are made.
  void on_trouble(std::function<void(const Status&)> handler) { on_trouble_ = std::move(handler); }
  // Once we are connected: waits for the others, then tells all to go.
  net::Task<Result<void>> conclude(TimePoint deadline);
  // Tells all that it came to nothing.
  net::Task<void> abort(const Status& status);
  void set_group(std::function<std::optional<Status>()> failure) { group_failure_ = std::move(failure); }
  void close();

 private:
  enum class Phase { kGathering, kLinking, kRunning, kOver };
  struct Seat {
    Door::Guest guest;
    MeetingTable::Place place;
    bool ready = false;
  };

  net::Task<void> serve(Door::Guest guest);
  net::Task<void> listen_to(int rank, Door::Guest guest);
  std::optional<Reason> refusal(const Hello& hello, const std::string& peer);
  std::optional<Reason> phase_refusal(const Hello& hello);
  void gone(int rank, const Door::Guest& guest);
  void trouble(const Status& status);
  Seat& seat(int rank) { return seats_[static_cast<size_t>(rank)]; }
  std::string name_of(int rank);
  std::vector<int> waited_for() const;
  net::Task<void> tell_all(FrameKind kind, std::vector<std::byte> body);

  net::asio::any_io_executor executor_;
  const RendezvousOptions options_;
  std::shared_ptr<Door> door_;
  Phase phase_ = Phase::kGathering;
  std::vector<Seat> seats_;
  std::optional<Status> trouble_;
  std::function<void(const Status&)> on_trouble_;
  std::function<std::optional<Status>()> group_failure_;
  net::asio::steady_timer changed_;
};

}  // namespace baton::parallel
