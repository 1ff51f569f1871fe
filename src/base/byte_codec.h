// Little-endian byte codecs for messages and headers. A reader never reads past its span: it fails and stays failed.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace baton {

static_assert(std::endian::native == std::endian::little, "the codecs and file readers assume a little-endian machine");

class ByteWriter {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // u32 length, then the bytes.
  void put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  // u32 count, then the elements.
  template <typename T>
    requires std::is_arithmetic_v<T>
  void put_array(std::span<const T> values) {
    put(static_cast<uint32_t>(values.size()));
    put_bytes(std::as_bytes(values));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  std::span<const std::byte> view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Zero once failed: check ok() or finish() before the values are used.
  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  T get() {
    T value{};
    if (!need(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  std::span<const std::byte> get_bytes(size_t count) {
    if (!need(count)) return {};
    auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  std::string get_string() {
    const auto taken = get_bytes(get<uint32_t>());
    return std::string(reinterpret_cast<const char*>(taken.data()), taken.size());
  }
  template <typename T>
    requires std::is_arithmetic_v<T>
  std::vector<T> get_array() {
    const auto count = get<uint32_t>();
    if (count > remaining() / sizeof(T)) {
      ok_ = false;
      return {};
    }
    std::vector<T> values(count);
    const auto taken = get_bytes(count * sizeof(T));
    if (!taken.empty()) std::memcpy(values.data(), taken.data(), taken.size());
    return values;
  }

  bool ok() const { return ok_; }
  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  // An error unless everything was read and nothing is left over. `what` names the message.
  Result<void> finish(std::string_view what) const {
    if (!ok_) return fail(Code::kDataLoss, "{} is cut short at byte {} of {}", what, position_, bytes_.size());
    if (remaining() != 0) return fail(Code::kDataLoss, "{} has {} bytes too many", what, remaining());
    return {};
  }

 private:
  bool need(size_t count) {
    if (ok_ && count <= remaining()) return true;
    ok_ = false;
    return false;
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace baton
