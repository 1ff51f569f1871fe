// A byte that changes between two hosts: the mesh ends with the reason, and no rank goes on with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "parallel/net/net_lanes.h"
#include "parallel/process_mesh.h"

namespace baton::parallel {
namespace {

using testing::HasSubstr;

// Carries bytes from one socket to another and changes one bit of byte number `at` (-1: none).
class Relay {
 public:
  Relay(int from, int to, int64_t at)
      : from_(from), thread_([from, to, at] {
          char bytes[4096];
          int64_t seen = 0;
          for (ssize_t n; (n = ::recv(from, bytes, sizeof(bytes), 0)) > 0; seen += n) {
            if (at >= seen && at < seen + n) bytes[at - seen] ^= 4;
            if (::send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) != n) break;
          }
          ::shutdown(to, SHUT_WR);
        }) {}
  ~Relay() {
    ::shutdown(from_, SHUT_RD);
    thread_.join();
  }

 private:
  int from_;
  std::thread thread_;
};

std::pair<Descriptor, Descriptor> socket_pair() {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

// Two processes' meshes; what rank 0 writes for rank 1 on one of the two paths goes through a relay.
struct TwoMeshes {
  enum class Path { kExchange, kMessages };
  TwoMeshes(Path spoiled, int64_t at) {
    std::vector<ProcessMeshParts> parts(2);
    for (int rank = 0; rank < 2; ++rank) {
      parts[static_cast<size_t>(rank)].state = std::make_unique<MeshState>(
          rank, std::vector<Member>{{.rank = 0, .address = "host0"}, {.rank = 1, .address = "host1"}}, MeshOptions{});
    }
    std::array<std::vector<Descriptor>, 2> control = ends(), exchange = ends(), messages = ends();
    auto& path = spoiled == Path::kExchange ? exchange : messages;
    auto [near, near_end] = socket_pair();
    far_end_ = std::move(path[0][1]);
    near_end_ = std::move(near_end);
    path[0][1] = std::move(near);
    forth_.emplace(near_end_.get(), far_end_.get(), at);
    back_.emplace(far_end_.get(), near_end_.get(), -1);
    for (size_t rank = 0; rank < 2; ++rank) {
      parts[rank].control = std::move(control[rank]);
      parts[rank].exchange = std::move(*make_net_lanes(std::move(exchange[rank])));
      parts[rank].messages = std::move(*make_net_lanes(std::move(messages[rank])));
      meshes[rank] = std::move(*make_process_mesh(std::move(parts[rank])));
    }
  }

  static std::array<std::vector<Descriptor>, 2> ends() {
    std::array<std::vector<Descriptor>, 2> made;
    for (auto& row : made) row.resize(2);
    auto [one, other] = socket_pair();
    made[0][1] = std::move(one);
    made[1][0] = std::move(other);
    return made;
  }

  // Rank 1's word on an exchange of `bytes` bytes each way.
  Result<void> exchange(size_t bytes) {
    const std::vector<std::byte> part(bytes, std::byte{7});
    const auto run = [&](size_t rank) -> Result<void> {
      std::vector<Mesh::Bytes> to(2);
      to[1 - rank] = part;
      std::vector<MessageBytes> from;
      return meshes[rank]->exchange(to, from);
    };
    Result<void> zero;
    std::thread other([&] { zero = run(0); });
    auto one = run(1);
    other.join();
    return one;
  }

  Descriptor near_end_, far_end_;
  std::optional<Relay> forth_, back_;
  std::array<std::unique_ptr<Mesh>, 2> meshes;
};

TEST(LaneCheck, WhatIsNotAlteredPasses) {
  TwoMeshes two(TwoMeshes::Path::kExchange, -1);
  for (const size_t bytes : {0, 1, 100, 100'000}) EXPECT_TRUE(two.exchange(bytes)) << bytes;
}

TEST(LaneCheck, AnAlteredExchangeEndsTheMesh) {
  // Its first byte, one in the middle, the last; small and large parts are written in different ways.
  for (const auto& [bytes, at] : {std::pair<size_t, int64_t>{1, 24}, {100, 77}, {100'000, 24 + 99'999}}) {
    TwoMeshes two(TwoMeshes::Path::kExchange, at);
    const auto done = two.exchange(bytes);
    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message(), HasSubstr("altered on its way"));
  }
}

TEST(LaneCheck, AnAlteredMessageEndsTheMesh) {
  TwoMeshes two(TwoMeshes::Path::kMessages, 24 + 500);
  const std::vector<std::byte> message(1000, std::byte{7});
  ASSERT_TRUE(two.meshes[0]->send(1, 5, message));
  const auto received = two.meshes[1]->receive(0, 5);
  ASSERT_FALSE(received);
  EXPECT_THAT(received.error().message(), HasSubstr("altered on its way"));
}

}  // namespace
}  // namespace baton::parallel
