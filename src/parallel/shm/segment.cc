#include "parallel/shm/segment.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cstring>
#include <fstream>

namespace baton::parallel {
namespace {

constexpr size_t kPage = 4096;
constexpr std::array<char, 8> kMagic = {'B', 'A', 'T', 'O', 'N', 'M', 'S', '1'};
constexpr uint64_t kRingBytesMax = uint64_t{1} << 30;

struct SegmentHeader {
  std::array<char, 8> magic;
  std::array<uint64_t, 2> nonce;
};

size_t segment_bytes(int processes, uint64_t ring_bytes) {
  return kPage + static_cast<size_t>(kPaths * processes) * (sizeof(RingHeader) + ring_bytes);
}

}  // namespace

void SegmentPlace::put(ByteWriter& writer) const {
  writer.put_string(boot_id);
  writer.put(pid);
  writer.put(descriptor);
  writer.put(nonce[0]);
  writer.put(nonce[1]);
  writer.put(ring_bytes);
}

SegmentPlace SegmentPlace::get(ByteReader& reader) {
  SegmentPlace place;
  place.boot_id = reader.get_string();
  place.pid = reader.get<int32_t>();
  place.descriptor = reader.get<int32_t>();
  place.nonce[0] = reader.get<uint64_t>();
  place.nonce[1] = reader.get<uint64_t>();
  place.ring_bytes = reader.get<uint64_t>();
  return place;
}

Result<Segment> Segment::create(int processes, uint64_t ring_bytes) {
  Segment segment;
  segment.processes_ = processes;
  segment.bytes_ = segment_bytes(processes, ring_bytes);
  segment.descriptor_ = Descriptor(::memfd_create("baton-mesh", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = segment.descriptor_.get();
  SegmentHeader header{.magic = kMagic, .nonce = {}};
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(segment.bytes_)) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      RAND_bytes(reinterpret_cast<unsigned char*>(header.nonce.data()), sizeof(header.nonce)) != 1) {
    return fail(Code::kResourceExhausted, "no shared memory of {} bytes: {}", segment.bytes_, std::strerror(errno));
  }
  void* mapped = ::mmap(nullptr, segment.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    return fail(Code::kResourceExhausted, "{} bytes can't be mapped: {}", segment.bytes_, std::strerror(errno));
  }
  segment.base_ = static_cast<std::byte*>(mapped);
  std::memcpy(segment.base_, &header, sizeof(header));
  segment.place_ = {
      .boot_id = host_boot_id(), .pid = ::getpid(), .descriptor = fd, .nonce = header.nonce, .ring_bytes = ring_bytes};
  return segment;
}

Result<Segment> Segment::map(int processes, const SegmentPlace& place) {
  if (place.ring_bytes < 64 || place.ring_bytes > kRingBytesMax || !std::has_single_bit(place.ring_bytes)) {
    return fail(Code::kMismatch, "rings of {} bytes", place.ring_bytes);
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", place.pid, place.descriptor);
  Descriptor opened(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!opened.open()) return fail(Code::kUnavailable, "{} can't be opened: {}", path, std::strerror(errno));
  Segment segment;
  segment.processes_ = processes;
  segment.place_ = place;
  segment.bytes_ = segment_bytes(processes, place.ring_bytes);
  struct stat status{};
  const int seals = ::fcntl(opened.get(), F_GET_SEALS);
  if (::fstat(opened.get(), &status) != 0 || static_cast<size_t>(status.st_size) != segment.bytes_ || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return fail(Code::kMismatch, "{} is not the shared memory of a mesh", path);
  }
  void* mapped = ::mmap(nullptr, segment.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, opened.get(), 0);
  if (mapped == MAP_FAILED) {
    return fail(Code::kResourceExhausted, "{} bytes can't be mapped: {}", segment.bytes_, std::strerror(errno));
  }
  segment.base_ = static_cast<std::byte*>(mapped);
  SegmentHeader header;
  std::memcpy(&header, segment.base_, sizeof(header));
  if (header.magic != kMagic || header.nonce != place.nonce) {
    return fail(Code::kMismatch, "{} is the shared memory of another mesh", path);
  }
  return segment;
}

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(processes_, other.processes_);
  std::swap(place_, other.place_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Segment::~Segment() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

std::byte* Segment::ring_base(int path, int from) const {
  const auto index = static_cast<size_t>(path * processes_ + from);
  return base_ + kPage + index * (sizeof(RingHeader) + place_.ring_bytes);
}

std::string host_boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace baton::parallel
