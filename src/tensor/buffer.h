// Memory for weights and scratch: 64-byte aligned (2 MiB aligned and huge-page advised when large), zeroed, one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace baton::tensor {

class Buffer {
 public:
  Buffer() = default;
  // kResourceExhausted when the system has no such memory.
  static Result<Buffer> allocate(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
};

// A file mapped read-only. The mapping outlives the descriptor.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Tells the system that [offset, offset + count) has been read and its pages can go.
  void release(size_t offset, size_t count) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace baton::tensor
