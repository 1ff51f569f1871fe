// A file written whole or not at all: bytes go to PATH.part, which takes PATH's name on commit.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton::weights {

// One thread. Without commit() the destructor removes what was written.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // kResourceExhausted when the disk is full or the write fails.
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write_zeros(size_t count);
  Result<void> commit();

 private:
  OutputFile(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
  std::string part_path() const { return path_ + ".part"; }

  std::FILE* file_ = nullptr;
  std::string path_;
};

Result<void> write_text_file(const std::string& path, std::string_view text);

}  // namespace baton::weights
