// Meshes over sockets and shared memory, several in one process: what they carry and how they end.
#include "parallel/process_mesh.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "parallel/mesh_test_support.h"
#include "parallel/net/net_lanes.h"
#include "parallel/shm/shm_lanes.h"

namespace baton::parallel {
namespace {

enum class Kind { kNet, kShm, kMixed };

// Sockets of each process to each other one.
std::vector<std::vector<Descriptor>> socket_grid(int size) {
  std::vector<std::vector<Descriptor>> grid(static_cast<size_t>(size));
  for (auto& row : grid) row.resize(static_cast<size_t>(size));
  for (size_t i = 0; i < grid.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      int pair[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      grid[i][j] = Descriptor(pair[0]);
      grid[j][i] = Descriptor(pair[1]);
    }
  }
  return grid;
}

std::vector<SegmentPlace> make_segments(int size, uint64_t ring_bytes, std::vector<Segment>& own) {
  std::vector<SegmentPlace> places;
  for (int rank = 0; rank < size; ++rank) {
    auto made = Segment::create(size, ring_bytes);
    EXPECT_TRUE(made) << made.error().to_string();
    places.push_back(made->place());
    own.push_back(std::move(*made));
  }
  return places;
}

std::vector<std::unique_ptr<Mesh>> make_meshes(Kind kind, int size, const MeshOptions& options = {},
                                               uint64_t ring_bytes = 4096) {
  auto control = socket_grid(size), exchange = socket_grid(size), messages = socket_grid(size);
  std::vector<Segment> own;
  std::vector<SegmentPlace> places;
  std::vector<Segments> mapped;
  if (kind != Kind::kNet) {
    places = make_segments(size, ring_bytes, own);
    for (int rank = 0; rank < size; ++rank) {
      auto segments = std::make_shared<std::vector<Segment>>();
      for (int p = 0; p < size; ++p) {
        // Mixed: even ranks are on one host, odd ones on another.
        const bool near = kind == Kind::kShm || p % 2 == rank % 2;
        segments->push_back(near ? std::move(*Segment::map(size, places[static_cast<size_t>(p)])) : Segment());
      }
      mapped.push_back(std::move(segments));
    }
  }
  std::vector<std::unique_ptr<Mesh>> meshes;
  std::vector<Member> members;
  for (int rank = 0; rank < size; ++rank) members.push_back({.rank = rank, .address = fmt::format("host{}", rank)});
  for (int rank = 0; rank < size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    ProcessMeshParts parts;
    parts.state = std::make_unique<MeshState>(rank, members, options);
    parts.control = std::move(control[r]);
    if (kind == Kind::kNet) {
      parts.exchange = std::move(*make_net_lanes(std::move(exchange[r])));
      parts.messages = std::move(*make_net_lanes(std::move(messages[r])));
    } else if (kind == Kind::kMixed) {
      parts.exchange = std::move(*make_mixed_lanes(mapped[r], rank, kExchangePath, std::move(exchange[r])));
      parts.messages = std::move(*make_mixed_lanes(mapped[r], rank, kMessagePath, std::move(messages[r])));
    } else {
      parts.exchange = make_shm_lanes(mapped[r], rank, kExchangePath, options.spin);
      parts.messages = make_shm_lanes(mapped[r], rank, kMessagePath, options.spin);
    }
    auto mesh = make_process_mesh(std::move(parts));
    EXPECT_TRUE(mesh) << mesh.error().to_string();
    meshes.push_back(std::move(*mesh));
  }
  return meshes;
}

void on_each(const std::vector<std::unique_ptr<Mesh>>& meshes, const std::function<void(Mesh&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& mesh : meshes) threads.emplace_back([&] { body(*mesh); });
  for (auto& thread : threads) thread.join();
}

class ProcessMeshTest : public testing::TestWithParam<Kind> {};

TEST_P(ProcessMeshTest, AllBytesArriveThroughNarrowPaths) {
  for (const int size : {2, 3, 8}) {
    const auto meshes = make_meshes(GetParam(), size);
    on_each(meshes, [](Mesh& mesh) { EXPECT_EQ(use_everything(mesh, 12, 40'000), ""); });
  }
}

TEST_P(ProcessMeshTest, PartsFarLargerThanThePathPass) {
  const auto meshes = make_meshes(GetParam(), 2, {}, 64 * 1024);
  on_each(meshes, [](Mesh& mesh) {
    const int peer = 1 - mesh.rank();
    const auto part = pattern(12'000'000, mesh.rank(), peer, 1);
    std::vector<Mesh::Bytes> to(2);
    to[static_cast<size_t>(peer)] = part;
    std::vector<MessageBytes> from;
    const auto done = mesh.exchange(to, from);
    ASSERT_TRUE(done) << done.error().to_string();
    EXPECT_TRUE(is_pattern(from[static_cast<size_t>(peer)].span(), part.size(), peer, mesh.rank(), 1));
    // Both send before either receives.
    ASSERT_TRUE(mesh.send(peer, 1, part));
    const auto message = mesh.receive(peer, 1);
    ASSERT_TRUE(message);
    EXPECT_TRUE(is_pattern(message->span(), part.size(), peer, mesh.rank(), 1));
  });
}

TEST_P(ProcessMeshTest, ExchangesAndMessagesOfDifferentThreadsDontMix) {
  const auto meshes = make_meshes(GetParam(), 3);
  on_each(meshes, [](Mesh& mesh) {
    const int next = (mesh.rank() + 1) % 3, before = (mesh.rank() + 2) % 3;
    std::vector<std::thread> senders;
    for (uint32_t tag = 0; tag < 3; ++tag) {
      senders.emplace_back([&, tag] {
        for (int i = 0; i < 40; ++i) {
          const auto message = pattern(part_bytes(mesh.rank(), next, i, 9000), mesh.rank(), next, i);
          EXPECT_TRUE(mesh.send(next, tag, message));
        }
      });
    }
    senders.emplace_back([&] { EXPECT_EQ(use_everything(mesh, 15, 20'000), ""); });
    for (int i = 0; i < 40; ++i) {
      for (uint32_t tag = 0; tag < 3; ++tag) {
        const auto message = mesh.receive(before, tag);
        ASSERT_TRUE(message) << message.error().to_string();
        EXPECT_TRUE(is_pattern(message->span(), part_bytes(before, mesh.rank(), i, 9000), before, mesh.rank(), i));
      }
    }
    for (auto& sender : senders) sender.join();
  });
}

TEST_P(ProcessMeshTest, LeavingIsToldToAllEvenInTheMiddleOfAnExchange) {
  const auto meshes = make_meshes(GetParam(), 3);
  std::atomic<int> told{0};
  meshes[0]->on_failure([&](const Status& status) {
    EXPECT_EQ(status.message(), "process 2 (host2) has left: the disk is full");
    ++told;
  });
  on_each(meshes, [](Mesh& mesh) {
    if (mesh.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      return mesh.leave("the disk is full");
    }
    const std::vector<Mesh::Bytes> to(3);
    std::vector<MessageBytes> from;
    const auto done = mesh.exchange(to, from);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), Code::kUnavailable);
    EXPECT_EQ(done.error().message(), "process 2 (host2) has left: the disk is full");
    EXPECT_EQ(mesh.receive(0, 1).error().message(), done.error().message());
    EXPECT_EQ(mesh.send(1, 1, {}).error().message(), done.error().message());
  });
  // The listener is called on a thread of the mesh.
  for (int i = 0; i < 1000 && told == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(told, 1);
}

TEST_P(ProcessMeshTest, LeavingWakesOnesOwnThreads) {
  const auto meshes = make_meshes(GetParam(), 2);
  std::thread waiting([&] {
    const auto message = meshes[0]->receive(1, 3, kNoTimeout);
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error().code(), Code::kCancelled);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  meshes[0]->leave("stopped");
  waiting.join();
}

TEST_P(ProcessMeshTest, AMemberThatDoesntComeIsLostAtTheDeadlineForAll) {
  const auto meshes = make_meshes(GetParam(), 4, {.deadline = std::chrono::milliseconds(300)});
  on_each(meshes, [](Mesh& mesh) {
    if (mesh.rank() == 3) return;
    const std::vector<Mesh::Bytes> to(4);
    std::vector<MessageBytes> from;
    const auto done = mesh.exchange(to, from);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), Code::kUnavailable);
    EXPECT_TRUE(done.error().message().starts_with("process 3 (host3) is lost: it has not given its part"))
        << done.error().message();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(meshes[3]->failure());
}

TEST_P(ProcessMeshTest, ASenderWaitsForRoomUntilItsDeadline) {
  const MeshOptions options{.deadline = std::chrono::milliseconds(400), .inbox_bytes_max = 100'000};
  const auto meshes = make_meshes(GetParam(), 2, options);
  const std::vector<std::byte> message(60'000);
  Result<void> sent;
  for (int i = 0; i < 100 && sent; ++i) sent = meshes[0]->send(1, 1, message);
  ASSERT_FALSE(sent);
  EXPECT_NE(sent.error().message().find("room for a message"), std::string::npos) << sent.error().message();
}

TEST_P(ProcessMeshTest, AFullInboxOpensAgain) {
  const auto meshes = make_meshes(GetParam(), 2, {.inbox_bytes_max = 100'000});
  const std::vector<std::byte> message(60'000);
  std::thread sender([&] {
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(meshes[0]->send(1, 1, message));
  });
  for (int i = 0; i < 60; ++i) {
    if (i % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto got = meshes[1]->receive(0, 1, std::chrono::seconds(5));
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(got->size(), message.size());
  }
  sender.join();
}

TEST_P(ProcessMeshTest, WrongArgumentsLeaveTheGroupWhole) {
  const auto meshes = make_meshes(GetParam(), 2);
  std::vector<MessageBytes> from;
  EXPECT_EQ(meshes[0]->exchange({}, from).error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(meshes[0]->failure());
  const auto limited = make_meshes(GetParam(), 2, {.message_bytes_max = 100});
  const std::vector<std::byte> large(101);
  EXPECT_EQ(limited[0]->send(1, 0, large).error().code(), Code::kOutOfRange);
  EXPECT_FALSE(limited[0]->failure());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ProcessMeshTest, testing::Values(Kind::kNet, Kind::kShm, Kind::kMixed),
                         [](const auto& info) {
                           return info.param == Kind::kNet ? "Net" : info.param == Kind::kShm ? "Shm" : "Mixed";
                         });

TEST(Segment, OnlyWhatWasAnnouncedIsMapped) {
  auto segment = Segment::create(2, 4096);
  ASSERT_TRUE(segment);
  EXPECT_TRUE(Segment::map(2, segment->place()));
  auto place = segment->place();
  place.nonce[0] ^= 1;
  EXPECT_EQ(Segment::map(2, place).error().code(), Code::kMismatch);
  place = segment->place();
  place.ring_bytes = 8192;
  EXPECT_EQ(Segment::map(2, place).error().code(), Code::kMismatch);
  place.ring_bytes = 5000;
  EXPECT_EQ(Segment::map(2, place).error().code(), Code::kMismatch);
  place = segment->place();
  place.descriptor = 0;
  EXPECT_FALSE(Segment::map(2, place));
  place.descriptor = -1;
  EXPECT_EQ(Segment::map(2, place).error().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace baton::parallel
