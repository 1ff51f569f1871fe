#include "transport/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace baton::transport {
namespace {

constexpr uint64_t kBorder = 2 << 20;
constexpr int64_t kBytesMax = int64_t{1} << 46;
uint64_t round_up(uint64_t value) { return (value + kBorder - 1) / kBorder * kBorder; }

std::unexpected<Status> no_memory(std::string_view step, uint64_t bytes) {
  return fail(Code::kResourceExhausted, "KV arena of {} bytes: {} failed: {}", bytes, step, std::strerror(errno));
}

}  // namespace

Result<SharedArena> SharedArena::create(Sizes sizes) {
  if (sizes.data_bytes < 0 || sizes.table_bytes < 0 || sizes.data_bytes > kBytesMax || sizes.table_bytes > kBytesMax) {
    return fail(Code::kInvalidArgument, "KV arena of {} and {} bytes", sizes.data_bytes, sizes.table_bytes);
  }
  ArenaHeader header{
      kArenaMagic, {}, kBorder, static_cast<uint64_t>(sizes.data_bytes), 0, static_cast<uint64_t>(sizes.table_bytes)};
  header.table_offset = kBorder + round_up(header.data_bytes);
  const uint64_t total = header.table_offset + round_up(header.table_bytes);

  SharedArena arena;
  arena.fd_ = memfd_create(std::string(kArenaName).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena.fd_ < 0) return no_memory("memfd_create", total);
  if (ftruncate(arena.fd_, static_cast<off_t>(total)) != 0) return no_memory("ftruncate", total);
  if (fcntl(arena.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return no_memory("sealing", total);
  void* base = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, arena.fd_, 0);
  if (base == MAP_FAILED) return no_memory("mmap", total);
  arena.base_ = static_cast<std::byte*>(base);
  arena.mapped_bytes_ = total;
  madvise(base, total, MADV_HUGEPAGE);
  if (getrandom(header.nonce.data(), sizeof(header.nonce), 0) != sizeof(header.nonce))
    return no_memory("getrandom", total);
  std::memcpy(arena.base_, &header, sizeof(header));
  return arena;
}

SharedArena::~SharedArena() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
  if (fd_ >= 0) ::close(fd_);
}
SharedArena::SharedArena(SharedArena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}
SharedArena& SharedArena::operator=(SharedArena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

wire::ShmLocation SharedArena::location() const {
  return {.boot_id = boot_id(),
          .pid = getpid(),
          .fd = fd_,
          .nonce = header().nonce,
          .data_bytes = header().data_bytes,
          .table_bytes = header().table_bytes};
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace baton::transport
