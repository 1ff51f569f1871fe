// Bytes of one message: not zeroed when made, and memory kept when it shrinks, so that a buffer can serve many
// messages. 64-byte aligned. A value with one owner.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace baton::parallel {

class MessageBytes {
 public:
  MessageBytes() = default;
  MessageBytes(MessageBytes&& other) noexcept
      : data_(std::move(other.data_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  MessageBytes& operator=(MessageBytes&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  // False when the system has no such memory; size is then 0. What was in it is lost when it grows.
  [[nodiscard]] bool resize(size_t bytes) {
    size_ = 0;
    if (bytes > capacity_) {
      capacity_ = 0;
      data_.reset();
      data_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow)));
      if (data_ == nullptr) return false;
      capacity_ = bytes;
    }
    size_ = bytes;
    return true;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace baton::parallel
