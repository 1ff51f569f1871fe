#include "launcher/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace baton::launcher {
namespace {

class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  ~SpawnAttributes() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  void send_output_to(int descriptor) {
    posix_spawn_file_actions_adddup2(&actions_, descriptor, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, descriptor, STDERR_FILENO);
  }
  const posix_spawnattr_t* attributes() const { return &attributes_; }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> made;
  for (const auto& text : texts) made.push_back(const_cast<char*>(text.c_str()));
  made.push_back(nullptr);
  return made;
}

bool has_name_of(const char* own, const std::vector<std::string>& added) {
  for (const auto& one : added) {
    const size_t length = one.find('=') + 1;
    if (std::strncmp(own, one.c_str(), length) == 0) return true;
  }
  return false;
}

}  // namespace

Result<pid_t> spawn_in_group(const SpawnOptions& options) {
  SpawnAttributes attributes;
  if (options.output >= 0) attributes.send_output_to(options.output);
  std::vector<std::string> environment = options.environment;
  for (char** own = environ; own != nullptr && *own != nullptr; ++own) {
    if (!has_name_of(*own, options.environment)) environment.emplace_back(*own);
  }
  const auto arguments = pointers(options.arguments);
  const auto variables = pointers(environment);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], attributes.actions(), attributes.attributes(), arguments.data(),
                                 variables.data());
  if (error != 0) {
    return fail(Code::kUnavailable, "{} can't be started: {}", options.arguments.front(), std::strerror(error));
  }
  return pid;
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::vector<std::pair<pid_t, ExitStatus>> reap() {
  std::vector<std::pair<pid_t, ExitStatus>> ended;
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return ended;
    ExitStatus exit;
    if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
    ended.emplace_back(pid, exit);
  }
}

bool group_alive(pid_t group) { return ::kill(-group, 0) == 0 || errno == EPERM; }

void signal_group(pid_t group, int signal) { ::kill(-group, signal); }

}  // namespace baton::launcher
