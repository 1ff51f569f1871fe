#include "apps/serve/stop_on_signal.h"

#include <csignal>
#include <cstdlib>

#include "base/log.h"

namespace baton::apps {

namespace {

bool hangup_counts() {
  struct sigaction now{};
  return sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler != SIG_IGN;
}

}  // namespace

void add_stop_signals(boost::asio::signal_set& signals) {
  for (const int signal : {SIGINT, SIGTERM}) signals.add(signal);
  if (hangup_counts()) signals.add(SIGHUP);
}

void exit_at_next_signal(boost::asio::signal_set& signals) {
  boost::system::error_code ignored;
  const bool hangup = hangup_counts();
  signals.clear(ignored);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { std::_Exit(0); });
  if (hangup) std::signal(SIGHUP, [](int) { std::_Exit(0); });
}

StopOnSignal::StopOnSignal(parallel::Mesh& mesh, Duration patience)
    : mesh_(mesh), patience_(patience), signals_(context_), timer_(context_) {
  add_stop_signals(signals_);
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (!error) on_signal(signal);
  });
  thread_ = std::thread([this] { context_.run(); });
}

StopOnSignal::~StopOnSignal() {
  context_.stop();
  thread_.join();
  // Whoever stops a deployment may signal a member that its leader has just let go: that is no failure of either.
  exit_at_next_signal(signals_);
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
