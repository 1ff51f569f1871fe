#include "apps/proxy_command.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stop_token>
#include <thread>

#include "apps/proxy_args.h"
#include "base/log.h"

namespace baton::apps {
namespace {

// Turns SIGINT and SIGTERM into a stop; a second one ends the process at once. Make it before any other thread, so that
// all threads leave the signals to it.
class SignalStop {
 public:
  SignalStop() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { wait(); });
  }
  ~SignalStop() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  std::stop_token token() const { return source_.get_token(); }

 private:
  void wait() {
    for (;;) {
      int signal = 0;
      sigwait(&signals_, &signal);
      if (signal == SIGUSR1) return;
      if (source_.stop_requested()) std::_Exit(128 + signal);
      log_info("signal={} action=stopping", signal);
      source_.request_stop();
    }
  }

  sigset_t signals_;
  std::stop_source source_;
  std::thread thread_;
};

}  // namespace

int proxy_command(int argc, char** argv) {
  const char* key = std::getenv("OPENAI_API_KEY");
  auto parsed = parse_proxy_args(std::vector<std::string>(argv, argv + argc), key == nullptr ? "" : key);
  if (!parsed) {
    fmt::print(stderr, "baton proxy: error: {}\n", parsed.error().message());
    return 2;
  }
  if (!parsed->help.empty()) {
    fmt::print("{}", parsed->help);
    return 0;
  }
  set_log_level(parsed->log_level);
  if (!parsed->notice.empty()) log_warning("{}", parsed->notice);
  std::signal(SIGPIPE, SIG_IGN);
  parsed->options.version = BATON_VERSION;
  const SignalStop signals;
  const auto exit_code = proxy::run_proxy(parsed->options, signals.token());
  if (!exit_code) {
    log_error("baton proxy: {}", exit_code.error().message());
    return 1;
  }
  return *exit_code;
}

}  // namespace baton::apps
