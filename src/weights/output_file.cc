#include "weights/output_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace baton::weights {

Result<OutputFile> OutputFile::create(const std::string& path) {
  OutputFile file(nullptr, path);
  file.file_ = std::fopen(file.part_path().c_str(), "wbe");
  if (file.file_ == nullptr) return fail(Code::kNotFound, "can't create {}: {}", path, std::strerror(errno));
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)), path_(std::move(other.path_)) {}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(part_path().c_str());
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  if (bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) return {};
  return fail(Code::kResourceExhausted, "can't write {}: {}", path_, std::strerror(errno));
}

Result<void> OutputFile::write_zeros(size_t count) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  while (count > 0) {
    const size_t now = std::min(count, kZeros.size());
    BATON_TRY(write(std::span(kZeros).first(now)));
    count -= now;
  }
  return {};
}

Result<void> OutputFile::commit() {
  const int closed = std::fclose(std::exchange(file_, nullptr));
  if (closed == 0 && std::rename(part_path().c_str(), path_.c_str()) == 0) return {};
  const int error = errno;
  std::remove(part_path().c_str());
  return fail(Code::kResourceExhausted, "can't write {}: {}", path_, std::strerror(error));
}

Result<void> write_text_file(const std::string& path, std::string_view text) {
  BATON_TRY_ASSIGN(auto file, OutputFile::create(path));
  BATON_TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace baton::weights
