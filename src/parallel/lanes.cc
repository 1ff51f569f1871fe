#include "parallel/lanes.h"

#include <cstring>

#include "base/checks.h"

namespace baton::parallel {

uint64_t lane_check(const Lanes& lanes, int process, uint32_t number, std::span<const std::byte> bytes) {
  return lanes.checks(process) ? checked_hash(bytes, number) : 0;
}

void LaneWriter::start(LaneHeader header, std::span<const std::byte> bytes) {
  header_ = header;
  bytes_ = bytes;
  position_ = 0;
  whole_.clear();
  if (bytes.size() > kCopiedMax) return;
  whole_.resize(sizeof(header) + bytes.size());
  std::memcpy(whole_.data(), &header, sizeof(header));
  if (!bytes.empty()) std::memcpy(whole_.data() + sizeof(header), bytes.data(), bytes.size());
}

Result<bool> LaneWriter::go_on(Lanes& lanes, int process) {
  bool moved = false;
  while (!done()) {
    std::span<const std::byte> next;
    if (!whole_.empty()) {
      next = std::span<const std::byte>(whole_).subspan(position_);
    } else if (position_ < sizeof(header_)) {
      next = std::as_bytes(std::span(&header_, 1)).subspan(position_);
    } else {
      next = bytes_.subspan(position_ - sizeof(header_));
    }
    const bool in_header = whole_.empty() && position_ < sizeof(header_);
    BATON_TRY_ASSIGN(const size_t written, lanes.write_some(process, next));
    position_ += written;
    moved = moved || written > 0;
    // One piece a turn, so that all processes go on together.
    if (!in_header || written == 0) break;
  }
  return moved;
}

}  // namespace baton::parallel
