// The contract of a mesh, by its twin.
#include "parallel/mesh.h"

#include <gtest/gtest.h>

#include <thread>

#include "parallel/memory/memory_mesh.h"
#include "parallel/mesh_test_support.h"

namespace baton::parallel {
namespace {

using Meshes = std::vector<std::unique_ptr<MemoryMesh>>;

void on_each(Meshes& meshes, const std::function<void(Mesh&)>& body) {
  std::vector<std::thread> threads;
  for (auto& mesh : meshes) threads.emplace_back([&] { body(*mesh); });
  for (auto& thread : threads) thread.join();
}

TEST(MemoryMesh, ExchangesMessagesAndBroadcastsArrive) {
  for (const int size : {1, 2, 5}) {
    auto meshes = make_memory_meshes(size);
    on_each(meshes, [](Mesh& mesh) { EXPECT_EQ(use_everything(mesh, 20), ""); });
  }
}

TEST(MemoryMesh, LossIsToldToAllWithNameAndReason) {
  auto meshes = make_memory_meshes(3);
  std::optional<Status> seen;
  meshes[0]->on_failure([&](const Status& status) { seen = status; });
  std::thread dying([&] { meshes[2]->die("killed by signal 9"); });
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<MessageBytes> from;
    const std::vector<Mesh::Bytes> to(3);
    const auto result = meshes[static_cast<size_t>(rank)]->exchange(to, from);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::kUnavailable);
    EXPECT_EQ(result.error().message(), "process 2 (memory) is lost: killed by signal 9");
  }
  dying.join();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->code(), Code::kUnavailable);
  EXPECT_EQ(meshes[0]->receive(1, 0).error().code(), Code::kUnavailable);
  EXPECT_EQ(meshes[1]->send(0, 0, {}).error().code(), Code::kUnavailable);
}

TEST(MemoryMesh, LeavingGivesItsReasonToOthers) {
  auto meshes = make_memory_meshes(2);
  meshes[1]->leave("out of memory");
  EXPECT_EQ(meshes[0]->failure()->message(), "process 1 (memory) has left: out of memory");
  EXPECT_EQ(meshes[1]->failure()->code(), Code::kCancelled);
}

TEST(MemoryMesh, WaitsEndAtTheirDeadline) {
  auto meshes = make_memory_meshes(2, {.deadline = std::chrono::milliseconds(50)});
  const auto own = meshes[0]->receive(1, 7, std::chrono::milliseconds(5));
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(meshes[0]->failure()) << "a caller's own timeout leaves the group whole";
  const auto wait = meshes[0]->receive(1, 7);
  ASSERT_FALSE(wait);
  EXPECT_EQ(wait.error().code(), Code::kUnavailable);
  EXPECT_NE(wait.error().message().find("process 1"), std::string::npos);
  EXPECT_TRUE(meshes[1]->failure()) << "all are told";
}

TEST(MemoryMesh, AFullInboxHoldsTheSenderBack) {
  auto meshes = make_memory_meshes(2, {.deadline = std::chrono::milliseconds(2000), .inbox_bytes_max = 1000});
  std::atomic<int> sent{0};
  std::thread sender([&] {
    const std::vector<std::byte> message(600);
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(meshes[0]->send(1, 0, message));
      ++sent;
    }
  });
  while (sent < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(sent, 2);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(meshes[1]->receive(0, 0)->size(), 600U);
  sender.join();
}

TEST(Mesh, ExecuteTimeoutIsRead) {
  EXPECT_EQ(*execute_timeout(""), std::chrono::seconds(300));
  EXPECT_EQ(*execute_timeout("7"), std::chrono::seconds(7));
  for (const char* bad : {"0", "-1", "x", "1.5", "99999999"}) EXPECT_FALSE(execute_timeout(bad)) << bad;
}

TEST(MessageBytes, KeepsMemoryWhenItShrinks) {
  MessageBytes bytes;
  ASSERT_TRUE(bytes.resize(1000));
  const auto* memory = bytes.data();
  ASSERT_TRUE(bytes.resize(10));
  ASSERT_TRUE(bytes.resize(900));
  EXPECT_EQ(bytes.data(), memory);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
  EXPECT_FALSE(bytes.resize(size_t{1} << 60));
  EXPECT_EQ(bytes.size(), 0U);
}

}  // namespace
}  // namespace baton::parallel
