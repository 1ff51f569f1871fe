// Members on hosts of their own, made of network namespaces, and a link between them that is cut.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

#include "base/log.h"
#include "parallel/process_test_support.h"

namespace baton::parallel {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Two namespaces, 10.231.7.1 and .2, with a link between them.
class TwoHosts {
 public:
  TwoHosts() : one_(fmt::format("baton-a{}", ::getpid())), two_(fmt::format("baton-b{}", ::getpid())) {
    made_ =
        run(fmt::format("ip netns add {} && ip netns add {} && ip link add ve{} netns {} type veth peer ve{} netns {}",
                        one_, two_, ::getpid(), one_, ::getpid(), two_));
    int number = 1;
    for (const auto& name : {one_, two_}) {
      made_ = made_ && run(fmt::format("ip -n {0} addr add 10.231.7.{1}/24 dev ve{2} && ip -n {0} link set ve{2} up && "
                                       "ip -n {0} link set lo up",
                                       name, number++, ::getpid()));
    }
  }
  ~TwoHosts() {
    run("ip netns del " + one_);
    run("ip netns del " + two_);
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool made() const { return made_; }
  bool cut() const { return run(fmt::format("ip -n {} link set ve{} down", two_, ::getpid())); }
  // The calling process lives there from now on.
  bool move_to(int host) const {
    const int descriptor = ::open(("/run/netns/" + (host == 0 ? one_ : two_)).c_str(), O_RDONLY | O_CLOEXEC);
    return descriptor >= 0 && ::setns(descriptor, CLONE_NEWNET) == 0;
  }

 private:
  std::string one_, two_;
  bool made_ = false;
};

TEST(MeshNetwork, ACutLinkIsNoticedByBothSides) {
  const TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces can't be made here";
  std::vector<std::unique_ptr<MemberProcess>> members;
  for (int rank = 0; rank < 2; ++rank) {
    members.push_back(std::make_unique<MemberProcess>([&, rank](const MemberProcess::Say& say) {
      set_log_level(LogLevel::kError);
      if (!hosts.move_to(rank)) return say("no namespace");
      auto options = loopback_group(29517, 2, rank);
      options.address = "10.231.7.1";
      options.allow_shm = false;
      options.mesh.silence = std::chrono::seconds(1);
      options.mesh.heartbeat = std::chrono::milliseconds(250);
      auto mesh = meet(options);
      if (!mesh) return say(mesh.error().to_string());
      say("met " + (*mesh)->members()[1].address);
      say((*mesh)->receive(1 - rank, 1, kNoTimeout).error().to_string());
    }));
  }
  for (auto& member : members) EXPECT_THAT(member->hear(), StartsWith("met 10.231.7.2:"));
  ASSERT_TRUE(hosts.cut());
  const TimePoint when = SteadyClock().now();
  for (int rank = 0; rank < 2; ++rank) {
    const auto said = members[static_cast<size_t>(rank)]->hear();
    EXPECT_THAT(said, StartsWith(fmt::format("unavailable: process {} (10.231.7.{}:", 1 - rank, 2 - rank)));
    EXPECT_THAT(said, HasSubstr("is lost: its host does not answer"));
  }
  EXPECT_LT(seconds_between(when, SteadyClock().now()), 4);
}

}  // namespace
}  // namespace baton::parallel
