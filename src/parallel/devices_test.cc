#include "parallel/devices.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <thread>

namespace baton::parallel {
namespace {

ReadVariable variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
}

TEST(Devices, ListsAndRangesInTheOrderAskedFor) {
  const auto devices = visible_devices(variables({{"ASCEND_RT_VISIBLE_DEVICES", "4-6, 0,9"}}));
  ASSERT_TRUE(devices) << devices.error().to_string();
  EXPECT_EQ(devices->ids, (std::vector<int>{4, 5, 6, 0, 9}));
  ASSERT_EQ(devices->cores.size(), 5U);
  const auto all = visible_devices(variables({}));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(devices->cores[i], all->of_rank(devices->ids[i])) << "device numbers go on modulo the machine";
  }
}

TEST(Devices, OursGoBeforeAscends) {
  const auto devices =
      visible_devices(variables({{"ASCEND_RT_VISIBLE_DEVICES", "1"}, {"BATON_VISIBLE_DEVICES", "0,3"}}));
  EXPECT_EQ(devices->ids, (std::vector<int>{0, 3}));
}

TEST(Devices, EmptyMeansAllOfTheMachine) {
  const auto devices = visible_devices(variables({{"ASCEND_RT_VISIBLE_DEVICES", " "}}));
  ASSERT_TRUE(devices);
  EXPECT_EQ(static_cast<int>(devices->ids.size()), devices->machine_devices);
}

TEST(Devices, WrongListsAreRefusedByName) {
  for (const char* bad : {"a", "1,,2", "3-1", "0,0", "0-2,1", "-1", "1-", "0-99999", "0-60000", "1;2", "99999999999"}) {
    const auto devices = visible_devices(variables({{"ASCEND_RT_VISIBLE_DEVICES", bad}}));
    ASSERT_FALSE(devices) << bad;
    EXPECT_EQ(devices.error().code(), Code::kInvalidArgument) << bad;
    EXPECT_NE(devices.error().message().find("ASCEND_RT_VISIBLE_DEVICES"), std::string::npos);
  }
  EXPECT_FALSE(visible_devices(variables({{"BATON_CORES_PER_DEVICE", "0"}})));
}

TEST(Devices, SeveralCoresMakeOneDevice) {
  const auto one = visible_devices(variables({}));
  const auto wide = visible_devices(variables({{"BATON_CORES_PER_DEVICE", "1024"}}));
  ASSERT_TRUE(one && wide);
  EXPECT_EQ(wide->machine_devices, 1);
  size_t threads = 0;
  for (const auto& cores : one->cores) threads += cores.size();
  EXPECT_EQ(wide->of_rank(0).size(), threads);
}

TEST(Devices, WarnWhenRanksShareCores) {
  const auto all = visible_devices(variables({}));
  ASSERT_TRUE(all);
  EXPECT_NE(all->warning(all->machine_devices + 1), "");
  EXPECT_EQ(all->warning(1), "");
  const auto wrapped =
      visible_devices(variables({{"BATON_VISIBLE_DEVICES", fmt::format("0,{}", all->machine_devices)}}));
  EXPECT_NE(wrapped->warning(2), "") << "two device numbers, one core";
}

TEST(Devices, OnlyTheCoresOfTheProcessCount) {
  std::thread narrow([] {
    const auto all = visible_devices(variables({}));
    ASSERT_TRUE(all);
    const int last = all->cores.back().back();
    ASSERT_TRUE(pin_this_thread({last}));
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(CPU_COUNT(&mask), 1);
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(last), &mask));
    const auto left = visible_devices(variables({}));
    ASSERT_TRUE(left);
    EXPECT_EQ(left->machine_devices, 1);
    EXPECT_EQ(left->of_rank(5), CoreSet{last});
  });
  narrow.join();
  EXPECT_FALSE(pin_this_thread({}));
  EXPECT_FALSE(pin_this_thread({4000}));
}

}  // namespace
}  // namespace baton::parallel
