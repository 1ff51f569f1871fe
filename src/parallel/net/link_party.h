// Connects one member of a meeting to all others: it dials those of lower rank and opens its door to those of higher.
//
// One executor.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <optional>

#include "parallel/net/descriptor.h"
#include "parallel/net/door.h"
#include "parallel/net/greeting.h"
#include "parallel/net/meeting_frames.h"

namespace baton::parallel {

class LinkParty {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::string secret;
    std::string host;          // to listen on
    std::string main_address;  // of rank 0, where the table has none
  };
  LinkParty(net::asio::any_io_executor executor, Options options);

  // Opens the door; nobody is let in before link().
  Result<void> open();
  int port() const { return door_->port(); }
  // Returns when all connections are made, at the first that can't be, or when cancel() is called.
  net::Task<Result<void>> link(const MeetingTable& table, TimePoint deadline);
  void cancel(const Status& status);
  // What link() made, by lane and process.
  std::vector<Descriptor> take(LaneKind lane);
  void close();

 private:
  net::Task<void> serve(Door::Guest guest);
  net::Task<void> dial(int process, LaneKind lane);
  net::Task<Result<void>> dial_once(int process, LaneKind lane);
  std::string name_of(int process) const;
  bool complete() const;
  std::string missing() const;
  GreetingKey key() const;
  Descriptor& place(LaneKind lane, int process) {
    return sockets_[static_cast<size_t>(lane)][static_cast<size_t>(process)];
  }

  net::asio::any_io_executor executor_;
  const Options options_;
  std::shared_ptr<Door> door_;
  MeetingTable table_;
  TimePoint deadline_;
  bool closed_ = false;
  std::optional<Status> failure_;
  net::asio::steady_timer changed_;
  std::vector<std::vector<Descriptor>> sockets_;
};

}  // namespace baton::parallel
