#include "server/generation.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace baton::server {

namespace asio = net::asio;

Generation::Generation(engine::Engine& engine, asio::any_io_executor executor)
    : engine_(engine), channel_(std::make_shared<Channel>(executor)) {}

Generation::~Generation() {
  channel_->cancelled = true;
  for (const auto& id : running_) {
    if (!id.empty()) engine_.abort(id);
  }
}

Result<void> Generation::submit(size_t choice, engine::EngineRequest request) {
  if (running_.size() <= choice) running_.resize(choice + 1);
  std::string id = request.id;
  auto callback = [channel = channel_, choice](engine::RequestOutput&& output) {
    asio::post(channel->executor, [channel, choice, output = std::move(output)]() mutable {
      if (channel->cancelled) return;
      channel->outputs.push_back({choice, std::move(output)});
      channel->wake.cancel();
    });
  };
  BATON_TRY(engine_.submit(std::move(request), std::move(callback)));
  running_[choice] = std::move(id);
  return {};
}

net::Task<Result<Generation::Output>> Generation::next() {
  while (channel_->outputs.empty()) {
    if (channel_->cancelled) co_return fail(Code::kCancelled, "the client has gone");
    channel_->wake.expires_at(asio::steady_timer::time_point::max());
    co_await channel_->wake.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  Output output = std::move(channel_->outputs.front());
  channel_->outputs.pop_front();
  if (output.output.finish) running_[output.choice].clear();
  co_return output;
}

void Generation::finish(size_t choice) {
  if (choice >= running_.size() || running_[choice].empty()) return;
  engine_.finish(running_[choice]);
  running_[choice].clear();
}

void Generation::cancel() {
  channel_->cancelled = true;
  for (auto& id : running_) {
    if (!id.empty()) engine_.abort(id);
    id.clear();
  }
  channel_->wake.cancel();
}

}  // namespace baton::server
