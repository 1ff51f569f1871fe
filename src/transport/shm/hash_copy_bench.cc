// What checking costs a copy: GB/s of hash_copy over shared memory beside a plain non-temporal copy and the hash alone,
// in turn, by the shape of units.
//   hash_copy_bench [megabytes, default 64]
#include <emmintrin.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "tensor/cpu.h"
#include "transport/shared_arena.h"
#include "transport/shm/hash_copy.h"

namespace baton::transport {
namespace {

struct Shape {
  const char* name;
  size_t run_bytes;
  size_t second_at;  // distance of a unit's values from its keys; 0: one run
};

void stream_copy(const std::byte* from, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  store_fence();
}

// The units of memory of `bytes` bytes, as runs.
std::vector<std::vector<CopyRun>> units_of(const Shape& shape, const std::byte* from, std::byte* to, size_t bytes) {
  std::vector<std::vector<CopyRun>> units;
  if (shape.second_at == 0) {
    for (size_t at = 0; at + shape.run_bytes <= bytes; at += shape.run_bytes) {
      units.push_back({{from + at, to + at, shape.run_bytes}});
    }
    return units;
  }
  for (size_t layer = 0; layer + 2 * shape.second_at <= bytes; layer += 2 * shape.second_at) {
    for (size_t head = 0; head < shape.second_at; head += shape.run_bytes) {
      const size_t keys = layer + head, values = keys + shape.second_at;
      units.push_back({{from + keys, to + keys, shape.run_bytes}, {from + values, to + values, shape.run_bytes}});
    }
  }
  return units;
}

void run(size_t bytes) {
  const auto arena_bytes = static_cast<int64_t>(bytes);
  auto from = *SharedArena::create({.data_bytes = arena_bytes, .table_bytes = 0});
  auto to = *SharedArena::create({.data_bytes = arena_bytes, .table_bytes = 0});
  for (size_t at = 0; at + 8 <= bytes; at += 8) {
    const uint64_t value = at * 0x9E3779B97F4A7C15;
    std::memcpy(from.data().data() + at, &value, 8);
  }
  std::memset(to.data().data(), 1, bytes);
  const HashCopy hash_copy = hash_copy_for(tensor::detect_isa());
  const Shape shapes[] = {{"units of 64 KB", 65536, 0},
                          {"units of 4 KB", 4096, 0},
                          {"keys and values of 2 KB, 3 heads", 2048, 3 * 2048},
                          {"keys and values of 32 KB, 8 heads", 32768, 8 * 32768}};
  struct Line {
    std::string name;
    std::function<void()> copy;
    std::vector<double> gbs = {};
  };
  uint64_t sink = 0;
  std::vector<Line> lines = {
      {"memcpy", [&] { std::memcpy(to.data().data(), from.data().data(), bytes); }},
      {"non-temporal copy, 16 B stores", [&] { stream_copy(from.data().data(), to.data().data(), bytes); }},
      {"XXH3-64 alone", [&] { sink += xxh3_64(from.data()); }}};
  for (const auto& shape : shapes) {
    lines.push_back({fmt::format("copy and hash, {}", shape.name),
                     [&, units = units_of(shape, from.data().data(), to.data().data(), bytes)] {
                       for (size_t u = 0; u < units.size(); ++u) {
                         sink += hash_copy(units[u], u + 1 < units.size() ? units[u + 1][0].from : nullptr);
                       }
                       store_fence();
                     }});
  }
  for (int round = 0; round < 9; ++round) {
    for (auto& line : lines) {
      const auto began = std::chrono::steady_clock::now();
      line.copy();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      line.gbs.push_back(static_cast<double>(bytes) / seconds / 1e9);
    }
  }
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  const double limit = median(lines[1].gbs);
  for (const auto& line : lines) {
    const double gbs = median(line.gbs);
    fmt::print("{:<50} {:>6.2f} GB/s  {:>4.0f} % of the non-temporal copy\n", line.name, gbs, gbs / limit * 100);
  }
  if (sink == 1) fmt::print(" ");
}

}  // namespace
}  // namespace baton::transport

int main(int argc, char** argv) {
  const int megabytes = argc > 1 ? std::atoi(argv[1]) : 64;
  BATON_CHECK(megabytes > 0 && megabytes < 10'000, "megabytes={}", megabytes);
  baton::transport::run(static_cast<size_t>(megabytes) << 20);
  return 0;
}
