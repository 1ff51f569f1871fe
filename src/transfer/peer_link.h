// One hand-off connection: a frame channel with a bounded queue of what is to be written. The reader is its owner's
// coroutine. Lives on one executor; shared, since its reader, its writer and its owner's table end in any order.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "transport/tcp/frame_channel.h"

namespace baton::transfer {

class PeerLink : public std::enable_shared_from_this<PeerLink> {
 public:
  using Job = std::function<net::Task<Result<void>>(transport::FrameChannel&)>;

  PeerLink(std::unique_ptr<net::Stream> stream, uint32_t payload_bytes_max);

  transport::FrameChannel& channel() { return channel_; }
  // Starts the writer. Once.
  void start_writing();
  // Closes the connection when the peer lets too much pile up.
  void send(wire::Message message);
  // `finished` is called once, whether or not the job ran.
  void send(Job job, std::function<void()> finished);
  void close();
  // Closes once what is queued now has been written.
  void close_after_flush();

 private:
  struct Item {
    Job job;
    std::function<void()> finished;
  };
  net::Task<void> write_loop();
  void push(Item item);

  transport::FrameChannel channel_;
  boost::asio::steady_timer queued_;
  std::deque<Item> queue_;
  bool writing_ = false, closed_ = false, closing_ = false;
};

}  // namespace baton::transfer
