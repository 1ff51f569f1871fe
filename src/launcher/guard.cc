#include "launcher/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

namespace baton::launcher {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(50);

// The environment a process was started with; empty for those of others and those that have ended.
std::string environment_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool carries(const std::string& environment, const std::string& variable) {
  const std::string ended = variable + '\0';
  return environment.starts_with(ended) || environment.find('\0' + ended) != std::string::npos;
}

bool has_ended(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || text.size() < name_end + 3 || text[name_end + 2] == 'Z';
}

void reap_adopted() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

// The guard's whole life. Its signals are ignored: it ends when the launcher does.
[[noreturn]] void stand_guard(int alive, const std::string& mark, Duration grace) {
  prctl(PR_SET_NAME, "baton-guard", 0, 0, 0);
  setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) std::signal(signal, SIG_IGN);
  // It must hold no pipe, log or console open that belongs to the launcher.
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    if (descriptor != alive) close(descriptor);
  }
  char byte = 0;
  ssize_t count = 0;
  do count = read(alive, &byte, 1);
  while (count < 0 && errno == EINTR);
  if (count == 0) sweep(mark, grace);
  _exit(0);
}

}  // namespace

std::string make_mark() {
  std::random_device device;
  return fmt::format("{}-{:08x}{:08x}", getpid(), device(), device());
}

std::string mark_variable(const std::string& mark) { return "BATON_LAUNCH_ID=" + mark; }

std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  const std::string variable = mark_variable(mark);
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad != std::errc() || end != name.data() + name.size() || pid == getpid()) continue;
    if (carries(environment_of(pid), variable) && !has_ended(pid)) found.push_back(pid);
  }
  return found;
}

int sweep(const std::string& mark, Duration grace) {
  const SteadyClock clock;
  const TimePoint kill_at = clock.now() + grace, give_up_at = kill_at + std::chrono::seconds(5);
  std::vector<pid_t> told;
  for (;;) {
    const auto left = marked_processes(mark);
    if (left.empty() || clock.now() > give_up_at) return static_cast<int>(told.size());
    for (const pid_t pid : left) {
      const bool known = std::find(told.begin(), told.end(), pid) != told.end();
      if (!known) told.push_back(pid);
      if (clock.now() >= kill_at) {
        kill(pid, SIGKILL);
      } else if (!known) {
        kill(pid, SIGTERM);
      }
    }
    std::this_thread::sleep_for(kLook);
    reap_adopted();
  }
}

Result<Guard> Guard::start(const std::string& mark, Duration grace) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(Code::kUnavailable, "pipe: {}", std::strerror(errno));
  const pid_t pid = fork();
  if (pid < 0) {
    close(ends[0]);
    close(ends[1]);
    return fail(Code::kUnavailable, "fork: {}", std::strerror(errno));
  }
  if (pid == 0) {
    close(ends[1]);
    stand_guard(ends[0], mark, grace);
  }
  close(ends[0]);
  return Guard(pid, ends[1]);
}

Guard::Guard(Guard&& other) noexcept : pid_(other.pid_), alive_(other.alive_) {
  other.pid_ = 0;
  other.alive_ = -1;
}

Guard::~Guard() {
  if (alive_ < 0) return;
  const char byte = 'e';
  while (write(alive_, &byte, 1) < 0 && errno == EINTR) {
  }
  close(alive_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace baton::launcher
