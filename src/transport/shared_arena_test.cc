#include "transport/shared_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "transport/shm/peer_arena.h"

namespace baton::transport {
namespace {

TEST(SharedArena, StartsZeroedAndAligned) {
  auto arena = SharedArena::create({.data_bytes = 5 << 20, .table_bytes = 1000});
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->data().size(), size_t{5 << 20});
  EXPECT_EQ(arena->table().size(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data().data()) % 4096, 0u);
  EXPECT_TRUE(std::ranges::all_of(arena->data(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(SharedArena, APeerSeesWhatIsWritten) {
  auto arena = *SharedArena::create({.data_bytes = 4096, .table_bytes = 64});
  auto peer = PeerArena::map(arena.location());
  ASSERT_TRUE(peer) << peer.error().to_string();
  arena.data()[100] = std::byte{42};
  arena.table()[3] = std::byte{7};
  EXPECT_EQ(peer->data()[100], std::byte{42});
  EXPECT_EQ(peer->table()[3], std::byte{7});
}

TEST(SharedArena, AnotherProcessSeesIt) {
  auto arena = *SharedArena::create({.data_bytes = 4096, .table_bytes = 64});
  arena.data()[9] = std::byte{99};
  const auto location = arena.location();
  const pid_t child = fork();
  if (child == 0) {
    // The child's own copy of the mapping and descriptor is there by fork; the path below goes through the parent.
    auto peer = PeerArena::map(location);
    _exit(peer && peer->data()[9] == std::byte{99} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SharedArena, AWrongAnnouncementIsNotBelieved) {
  auto arena = *SharedArena::create({.data_bytes = 4096, .table_bytes = 64});
  const auto refused = [&](auto change) {
    auto location = arena.location();
    change(location);
    const auto peer = PeerArena::map(location);
    return !peer && peer.error().code() == Code::kUnavailable;
  };
  EXPECT_TRUE(refused([](auto& l) { l.nonce[0] ^= 1; }));
  EXPECT_TRUE(refused([](auto& l) { l.data_bytes += 1; }));
  EXPECT_TRUE(refused([](auto& l) { l.boot_id = "another"; }));
  EXPECT_TRUE(refused([](auto& l) { l.pid = 0x7FFFFFFF; }));
  EXPECT_TRUE(refused([](auto& l) { l.fd = 0; }));
}

TEST(SharedArena, OtherDescriptorsAreNotOpened) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  auto arena = *SharedArena::create({.data_bytes = 4096, .table_bytes = 64});
  auto location = arena.location();
  location.fd = pipe_ends[0];
  EXPECT_FALSE(PeerArena::map(location));
  // A memfd of our name whose size could be cut under the reader.
  const int loose = memfd_create("baton-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(loose, 8192), 0);
  location.fd = loose;
  const auto peer = PeerArena::map(location);
  ASSERT_FALSE(peer);
  EXPECT_NE(peer.error().message().find("not sealed"), std::string::npos);
  close(loose);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace baton::transport
