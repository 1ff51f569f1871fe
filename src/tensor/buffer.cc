#include "tensor/buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace baton::tensor {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Result<Buffer> Buffer::allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  const bool large = bytes >= 2 * kHugePage;
  const size_t mapped = round_up(bytes, kPage) + (large ? kHugePage : 0);
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return fail(Code::kResourceExhausted, "can't reserve {} bytes of memory: {}", bytes, std::strerror(errno));
  }
  auto* data = static_cast<std::byte*>(raw);
  size_t kept = mapped;
  if (large) {
    // Trim to a huge-page border.
    const size_t head = round_up(reinterpret_cast<size_t>(data), kHugePage) - reinterpret_cast<size_t>(data);
    if (head > 0) munmap(data, head);
    data += head;
    kept -= head;
    madvise(data, kept, MADV_HUGEPAGE);
  }
  buffer.data_ = data;
  buffer.size_ = bytes;
  buffer.mapped_ = kept;
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, mapped_);
}
Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Non-blocking, since opening a FIFO would wait for its writer; it changes nothing for a regular file.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return fail(Code::kNotFound, "can't open {}: {}", path, std::strerror(errno));
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(Code::kInvalidArgument, "{} is not a regular file", path);
  }
  MappedFile file;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      return fail(Code::kResourceExhausted, "can't map {}: {}", path, std::strerror(error));
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}
MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release(size_t offset, size_t count) const {
  const size_t begin = round_up(offset, kPage);
  const size_t end = (offset + count) / kPage * kPage;
  if (begin < end) madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace baton::tensor
