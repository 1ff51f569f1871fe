#include "transfer/peer_link.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace baton::transfer {
namespace {

namespace asio = boost::asio;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kQueueMax = 4096;
constexpr Duration kWriteTimeout = std::chrono::seconds(10);

}  // namespace

PeerLink::PeerLink(std::unique_ptr<net::Stream> stream, uint32_t payload_bytes_max)
    : channel_(std::move(stream), payload_bytes_max),
      queued_(channel_.stream().executor(), asio::steady_timer::time_point::max()) {}

void PeerLink::start_writing() {
  writing_ = true;
  asio::co_spawn(queued_.get_executor(), [self = shared_from_this()] { return self->write_loop(); }, asio::detached);
}

void PeerLink::send(wire::Message message) {
  push({[message = std::move(message)](transport::FrameChannel& channel) -> net::Task<Result<void>> {
          return channel.write(message, {}, kWriteTimeout);
        },
        {}});
}

void PeerLink::send(Job job, std::function<void()> finished) { push({std::move(job), std::move(finished)}); }

void PeerLink::push(Item item) {
  if (closed_ || closing_ || queue_.size() >= kQueueMax) {
    if (!closing_) close();
    if (item.finished) item.finished();
    return;
  }
  queue_.push_back(std::move(item));
  queued_.cancel();
}

void PeerLink::close() {
  if (closed_) return;
  closed_ = true;
  channel_.close();
  queued_.cancel();
  if (writing_) return;  // the writer empties the queue
  for (auto& item : std::exchange(queue_, {})) {
    if (item.finished) item.finished();
  }
}

void PeerLink::close_after_flush() {
  closing_ = true;
  queued_.cancel();
}

net::Task<void> PeerLink::write_loop() {
  while (!closed_) {
    if (queue_.empty()) {
      if (closing_) break;
      queued_.expires_at(asio::steady_timer::time_point::max());
      co_await queued_.async_wait(kAwait);
      continue;
    }
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const auto written = co_await item.job(channel_);
    if (item.finished) item.finished();
    if (!written) break;
  }
  writing_ = false;
  close();
  for (auto& item : std::exchange(queue_, {})) {
    if (item.finished) item.finished();
  }
}

}  // namespace baton::transfer
