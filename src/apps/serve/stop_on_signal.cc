#include "apps/serve/stop_on_signal.h"

#include <csignal>

#include "base/log.h"

namespace baton::apps {

StopOnSignal::StopOnSignal(parallel::Mesh& mesh, Duration patience)
    : mesh_(mesh), patience_(patience), signals_(context_, SIGINT, SIGTERM), timer_(context_) {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (!error) on_signal(signal);
  });
  thread_ = std::thread([this] { context_.run(); });
}

StopOnSignal::~StopOnSignal() {
  context_.stop();
  thread_.join();
}

void StopOnSignal::on_signal(int signal) {
  asked_.store(true);
  log_info("signal={} action=stopping waits_for=\"the leading process\"", signal);
  timer_.expires_after(patience_);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) leave();
  });
  signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (!error) leave();
  });
}

void StopOnSignal::leave() { mesh_.leave("it was asked to stop"); }

}  // namespace baton::apps
