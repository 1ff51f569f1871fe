#include "transport/shm/peer_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace baton::transport {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The peer names the path, so it is not trusted: only a memfd of our name is opened (never a pipe or a device, whose
// opening may block or act), and only one whose size is sealed is mapped.
Result<void> open_memfd(const wire::ShmLocation& location, Descriptor& into) {
  const std::string path = fmt::format("/proc/{}/fd/{}", location.pid, location.fd);
  char target[128] = {};
  if (readlink(path.c_str(), target, sizeof(target) - 1) < 0) {
    return fail(Code::kUnavailable, "can't read {}: {}", path, std::strerror(errno));
  }
  if (std::string_view(target) != fmt::format("/memfd:{} (deleted)", kArenaName)) {
    return fail(Code::kUnavailable, "{} is {}, not a KV arena", path, target);
  }
  into.fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (into.fd < 0) return fail(Code::kUnavailable, "can't open {}: {}", path, std::strerror(errno));
  const int seals = fcntl(into.fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return fail(Code::kUnavailable, "the size of {} is not sealed", path);
  return {};
}

bool fits(const ArenaHeader& header, uint64_t total) {
  const auto inside = [&](uint64_t offset, uint64_t bytes) {
    return offset % 64 == 0 && offset <= total && bytes <= total - offset;
  };
  return inside(header.data_offset, header.data_bytes) && inside(header.table_offset, header.table_bytes);
}

}  // namespace

Result<PeerArena> PeerArena::map(const wire::ShmLocation& location) {
  if (location.boot_id.empty() || location.boot_id != boot_id()) {
    return fail(Code::kUnavailable, "the peer is on another host");
  }
  Descriptor descriptor;
  BATON_TRY(open_memfd(location, descriptor));
  struct stat info{};
  if (fstat(descriptor.fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 4096) {
    return fail(Code::kUnavailable, "the peer's KV arena has no header");
  }
  PeerArena arena;
  const auto total = static_cast<size_t>(info.st_size);
  void* base = mmap(nullptr, total, PROT_READ, MAP_SHARED, descriptor.fd, 0);
  if (base == MAP_FAILED) return fail(Code::kUnavailable, "can't map the peer's KV arena: {}", std::strerror(errno));
  arena.base_ = static_cast<const std::byte*>(base);
  arena.mapped_bytes_ = total;
  std::memcpy(&arena.header_, base, sizeof(ArenaHeader));
  const ArenaHeader& header = arena.header_;
  if (header.magic != kArenaMagic || header.nonce != location.nonce || header.data_bytes != location.data_bytes ||
      header.table_bytes != location.table_bytes || !fits(header, total)) {
    return fail(Code::kUnavailable, "/proc/{}/fd/{} is not the KV arena that the peer announced", location.pid,
                location.fd);
  }
  return arena;
}

PeerArena::~PeerArena() {
  if (base_ != nullptr) munmap(const_cast<std::byte*>(base_), mapped_bytes_);
}
PeerArena::PeerArena(PeerArena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      header_(other.header_) {}
PeerArena& PeerArena::operator=(PeerArena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(header_, other.header_);
  return *this;
}

}  // namespace baton::transport
