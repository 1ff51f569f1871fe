#include "parallel/net/door.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace baton::parallel {

namespace asio = net::asio;

Result<std::shared_ptr<Door>> Door::open(asio::any_io_executor executor, const std::string& host, int port,
                                         Serve serve) {
  BATON_TRY_ASSIGN(auto listener, net::listen(executor, {.host = host, .port = port}));
  return std::shared_ptr<Door>(new Door(executor, std::move(listener), std::move(serve)));
}

void Door::start() { asio::co_spawn(executor_, accept_all(shared_from_this()), asio::detached); }

net::Task<void> Door::accept_all(std::shared_ptr<Door> self) {
  while (!self->closed_) {
    auto stream = co_await self->listener_->accept();
    if (self->closed_) co_return;
    if (!stream) {
      // Out of descriptors, most likely: those who wait stay in the system's queue.
      asio::steady_timer pause(self->executor_, std::chrono::milliseconds(50));
      co_await pause.async_wait(asio::use_awaitable);
      continue;
    }
    Guest guest = std::move(*stream);
    self->unknown_.push_back(guest);
    if (self->unknown_.size() > kUnknownMax) {
      self->unknown_.front()->close();
      self->unknown_.pop_front();
    }
    asio::co_spawn(self->executor_, serve_one(self, std::move(guest)), asio::detached);
  }
}

net::Task<void> Door::serve_one(std::shared_ptr<Door> self, Guest guest) {
  co_await self->serve_(guest);
  self->known(guest);
  std::erase_if(self->inside_, [&](const auto& each) { return each.expired() || each.lock() == guest; });
  guest->close();
}

void Door::known(const Guest& guest) {
  if (std::erase(unknown_, guest) > 0) inside_.push_back(guest);
}

void Door::close() {
  if (std::exchange(closed_, true)) return;
  listener_->close();
  for (const auto& guest : unknown_) guest->close();
  for (const auto& guest : inside_) {
    if (const auto stream = guest.lock()) stream->close();
  }
}

}  // namespace baton::parallel
