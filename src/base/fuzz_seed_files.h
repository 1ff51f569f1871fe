// What the programs that write seed corpora of binary formats share: one file a seed, named by the caller.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace baton {

struct FuzzSeed {
  std::string name;  // of its file
  std::vector<std::byte> bytes;
};

// A message behind the byte by which a target chooses its decoder.
inline FuzzSeed chosen_seed(int choice, std::string name, std::span<const std::byte> body) {
  std::vector<std::byte> bytes{static_cast<std::byte>(choice)};
  bytes.insert(bytes.end(), body.begin(), body.end());
  return {std::move(name), std::move(bytes)};
}

// The main() of such a program: FOLDER is its one argument. Returns its exit status.
inline int write_fuzz_seeds(int argc, char** argv, std::span<const FuzzSeed> seeds) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto& [name, bytes] : seeds) {
    std::ofstream file(folder / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (file.good()) continue;
    std::fprintf(stderr, "can't write %s\n", (folder / name).c_str());
    return 1;
  }
  return 0;
}

}  // namespace baton
