// The in-memory twin of a socket: two bounded pipes between two ends, all on one executor.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <vector>

#include "net/stream.h"

namespace baton::net {
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// One direction. Timers serve as events: whoever changes the pipe cancels the other side's wait.
struct Pipe {
  Pipe(const asio::any_io_executor& executor, size_t pipe_capacity)
      : capacity(pipe_capacity), readable(executor), writable(executor) {}
  const size_t capacity;
  std::vector<std::byte> bytes;
  bool writer_done = false;  // no more will come
  bool reader_gone = false;  // nobody will read
  asio::steady_timer readable, writable;

  void wake() {
    readable.cancel();
    writable.cancel();
  }
};

class MemoryStream final : public Stream {
 public:
  MemoryStream(asio::any_io_executor executor, std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out)
      : executor_(std::move(executor)), in_(std::move(in)), out_(std::move(out)) {}
  ~MemoryStream() override { close(); }

  Task<Result<size_t>> read_some(std::span<std::byte> into, Duration timeout) override {
    const auto pipe = in_;
    const TimePoint deadline = deadline_after(timeout);
    for (;;) {
      if (pipe->reader_gone) co_return fail(Code::kCancelled, "the memory stream is closed here");
      if (!pipe->bytes.empty()) break;
      if (pipe->writer_done) co_return size_t{0};
      if (SteadyClock().now() >= deadline) co_return fail(Code::kDeadlineExceeded, "reading from memory: timed out");
      pipe->readable.expires_at(deadline);
      co_await pipe->readable.async_wait(kAwait);
    }
    const size_t count = std::min(into.size(), pipe->bytes.size());
    std::memcpy(into.data(), pipe->bytes.data(), count);
    pipe->bytes.erase(pipe->bytes.begin(), pipe->bytes.begin() + static_cast<ptrdiff_t>(count));
    pipe->writable.cancel();
    co_return count;
  }

  Task<Result<void>> write(std::span<const std::span<const std::byte>> pieces, Duration timeout) override {
    const auto pipe = out_;
    const TimePoint deadline = deadline_after(timeout);
    for (auto piece : pieces) {
      while (!piece.empty()) {
        if (pipe->writer_done) co_return fail(Code::kCancelled, "the memory stream is closed here");
        if (pipe->reader_gone) co_return fail(Code::kUnavailable, "the memory stream's other end has gone");
        if (const size_t room = std::min(piece.size(), pipe->capacity - pipe->bytes.size()); room > 0) {
          pipe->bytes.insert(pipe->bytes.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(room));
          piece = piece.subspan(room);
          pipe->readable.cancel();
          continue;
        }
        if (SteadyClock().now() >= deadline) co_return fail(Code::kDeadlineExceeded, "writing to memory: timed out");
        pipe->writable.expires_at(deadline);
        co_await pipe->writable.async_wait(kAwait);
      }
    }
    co_return Result<void>();
  }

  Task<Result<void>> shutdown_write(Duration) override {
    out_->writer_done = true;
    out_->wake();
    co_return Result<void>();
  }
  void close() override {
    out_->writer_done = true;
    in_->reader_gone = true;
    in_->wake();
    out_->wake();
  }
  asio::any_io_executor executor() override { return executor_; }
  std::string peer() const override { return "memory"; }
  bool quiet() const override { return in_->bytes.empty() && !in_->writer_done; }
  bool peer_hung_up() const override { return in_->writer_done; }

 private:
  asio::any_io_executor executor_;
  std::shared_ptr<Pipe> in_, out_;  // shared: either end may be destroyed first
};

}  // namespace

std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_memory_streams(asio::any_io_executor executor,
                                                                                size_t capacity) {
  auto forth = std::make_shared<Pipe>(executor, std::max<size_t>(capacity, 1));
  auto back = std::make_shared<Pipe>(executor, std::max<size_t>(capacity, 1));
  return {std::make_unique<MemoryStream>(executor, back, forth), std::make_unique<MemoryStream>(executor, forth, back)};
}

}  // namespace baton::net
