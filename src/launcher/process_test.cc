// No process of a launch may outlive it, and no output may be lost.
#include "launcher/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "launcher/guard.h"
#include "launcher/output.h"
#include "launcher/preflight.h"

namespace baton::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

bool within(Duration limit, const std::function<bool()>& true_at_last) {
  const SteadyClock clock;
  for (const TimePoint end = clock.now() + limit; clock.now() < end;) {
    if (true_at_last()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(Process, AGroupIsAliveUntilItsLastMemberEnds) {
  adopt_orphans();
  // The shell ends at once; what it left in its group goes on.
  const auto pid = spawn_in_group({.arguments = {"bash", "-c", "sleep 60 & exit 4"}, .environment = {}, .output = -1});
  ASSERT_TRUE(pid.has_value());
  std::optional<ExitStatus> status;
  ASSERT_TRUE(within(seconds(5), [&] {
    for (const auto& [ended, how] : reap()) {
      if (ended == *pid) status = how;
    }
    return status.has_value();
  }));
  EXPECT_EQ(status->code, 4);
  EXPECT_TRUE(group_alive(*pid));
  signal_group(*pid, SIGTERM);
  EXPECT_TRUE(within(seconds(5), [&] {
    reap();
    return !group_alive(*pid);
  }));
}

TEST(Process, WhatCanNotBeStartedIsSaid) {
  const auto pid = spawn_in_group({.arguments = {"no-such-program-anywhere"}, .environment = {}, .output = -1});
  ASSERT_FALSE(pid.has_value());
  EXPECT_THAT(pid.error().message(), HasSubstr("no-such-program-anywhere can't be started"));
}

TEST(Guard, TheSweepFindsWhatLeftItsGroupAndNothingElse) {
  adopt_orphans();
  const std::string mark = make_mark();
  EXPECT_EQ(sweep(mark, seconds(1)), 0);
  const auto pid =
      spawn_in_group({.arguments = {"setsid", "sleep", "61"}, .environment = {mark_variable(mark)}, .output = -1});
  const auto other =
      spawn_in_group({.arguments = {"sleep", "62"}, .environment = {mark_variable(mark + "0")}, .output = -1});
  ASSERT_TRUE(pid.has_value());
  ASSERT_TRUE(other.has_value());
  // setsid has forked and gone: its child alone is left, in a group of its own.
  ASSERT_TRUE(within(seconds(5), [&] {
    reap();
    return !group_alive(*pid) && marked_processes(mark).size() == 1;
  }));
  EXPECT_EQ(sweep(mark, seconds(5)), 1);
  EXPECT_TRUE(marked_processes(mark).empty());
  EXPECT_TRUE(group_alive(*other));
  signal_group(*other, SIGKILL);
}

// A launcher that is killed can do nothing any more: its guard does.
TEST(Guard, StopsWhatAKilledLauncherLeft) {
  const std::string mark = make_mark();
  const pid_t launcher = fork();
  if (launcher == 0) {
    auto guard = Guard::start(mark, seconds(1));
    const auto child = spawn_in_group({.arguments = {"bash", "-c", "trap '' TERM; sleep 63; sleep 63"},
                                       .environment = {mark_variable(mark)},
                                       .output = -1});
    if (!guard || !child) _exit(1);
    for (;;) pause();
  }
  ASSERT_TRUE(within(seconds(5), [&] { return !marked_processes(mark).empty(); }));
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(within(seconds(10), [&] {
    reap();
    return marked_processes(mark).empty();
  }));
}

TEST(Output, FilesHaveEveryByteAndTheConsoleWholeLines) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_launch_output" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  {
    Console console(ends[1]);
    auto output = ChildOutput::open(folder / "a.log", "[dp0] ", "bash t").value();
    output.take("one\ntw", console);
    output.take("o\n10%\r20%\r\nlast", console);
    output.finish(console);
    console.finish(100);
    EXPECT_EQ(output.last_lines().back(), "last");
  }
  std::string shown(4096, '\0');
  shown.resize(static_cast<size_t>(read(ends[0], shown.data(), shown.size())));
  EXPECT_EQ(shown, "[dp0] one\n[dp0] two\n[dp0] 10%\n[dp0] 20%\n[dp0] \n[dp0] last\n");
  EXPECT_EQ(text_of(folder / "a.log"), "==== bash t\none\ntwo\n10%\r20%\r\nlast");
  EXPECT_FALSE(ChildOutput::open(folder / "no/such/a.log", "", "").has_value());
  std::filesystem::remove_all(folder);
  close(ends[0]);
  close(ends[1]);
}

TEST(Output, AConsoleThatNobodyReadsStopsNothing) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  Console console(ends[1]);
  const std::string line(1000, 'x');
  for (int i = 0; i < 5000; ++i) {
    console.add(line + "\n");
    console.flush();
  }
  EXPECT_TRUE(console.pending());
  std::string shown;
  std::array<char, 65536> buffer;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  while (console.pending()) {
    console.flush();
    for (ssize_t count; (count = read(ends[0], buffer.data(), buffer.size())) > 0;) shown.append(buffer.data(), count);
  }
  console.add("end\n");
  console.flush();
  for (ssize_t count; (count = read(ends[0], buffer.data(), buffer.size())) > 0;) shown.append(buffer.data(), count);
  EXPECT_THAT(shown, HasSubstr("lines left out here"));
  EXPECT_TRUE(shown.ends_with("end\n"));
  EXPECT_LT(shown.size(), size_t{2} << 20);
  close(ends[0]);
  close(ends[1]);
}

TEST(Preflight, TemplatePortsAndCoresAreLookedAt) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_preflight" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto file = folder / "t.sh";
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const int taken = ntohs(address.sin_port);

  LaunchOptions options;
  options.dp_size = 2;
  options.tp_size = 500;
  options.dp_address = "127.0.0.1";
  options.template_path = file;
  options.dp_rpc_port = taken > 40000 ? 20111 : 50111;
  options.start_port = taken > 40000 ? 20211 : 50211;
  const auto refusal = [&](const LaunchOptions& wanted) {
    const auto checked = check_machine(plan_launch(wanted).value());
    return checked ? std::string() : checked.error().message();
  };
  EXPECT_THAT(refusal(options), HasSubstr("t.sh: No such file"));
  std::ofstream(file) << "echo $8; vllm serve x";
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/no/such:/usr/share", 1);
  const auto report = check_machine(plan_launch(options).value());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  setenv("PATH", path.c_str(), 1);
  ASSERT_EQ(report->warnings.size(), 3u);
  EXPECT_THAT(report->warnings[0], HasSubstr("reads $8"));
  EXPECT_THAT(report->warnings[1], HasSubstr("runs `vllm`, which is not on PATH"));
  EXPECT_THAT(report->warnings[2], HasSubstr("are 1000 devices"));
  auto busy = options;
  busy.start_port = taken - 1;
  EXPECT_THAT(refusal(busy), HasSubstr(fmt::format("port {}: Address already in use", taken)));
  busy = options;
  busy.dp_rpc_port = taken;
  EXPECT_THAT(refusal(busy), HasSubstr("--dp-rpc-port"));
  busy.dp_address = "no such host";
  EXPECT_THAT(refusal(busy), HasSubstr("--dp-address"));
  EXPECT_THAT(refusal([&] {
                auto folder_for_file = options;
                folder_for_file.template_path = folder;
                return folder_for_file;
              }()),
              HasSubstr("not a file"));
  close(listener);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace baton::launcher
