#include "tensor/cpu.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace baton::tensor {
namespace {

std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The cgroup v2 folders from this process's own up to the root.
template <typename Visit>
void for_each_cgroup(Visit visit) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  std::string path = "/";
  while (std::getline(file, line)) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  for (;;) {
    visit("/sys/fs/cgroup" + (path == "/" ? "" : path));
    if (path.empty() || path == "/") return;
    path = path.substr(0, path.find_last_of('/'));
    if (path.empty()) path = "/";
  }
}

int64_t memory_available_in_meminfo() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("MemAvailable:")) {
      std::istringstream fields(line.substr(13));
      int64_t kib = 0;
      fields >> kib;
      return kib * 1024;
    }
  }
  return std::numeric_limits<int64_t>::max();
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (name == isa_name(isa)) return isa;
  }
  return std::nullopt;
}

Isa detect_isa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                      __builtin_cpu_supports("gfni");
  if (avx512) return Isa::kAvx512;
  return avx2 ? Isa::kAvx2 : Isa::kPortable;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  for_each_cgroup([&](const std::string& folder) {
    std::ifstream file(folder + "/cpu.max");
    std::string quota;
    int64_t period = 0;
    if (file >> quota >> period && quota != "max" && period > 0) {
      cores = std::min(cores, static_cast<int>((std::stoll(quota) + period - 1) / period));
    }
  });
  return std::max(1, cores);
}

int64_t available_memory_bytes() {
  int64_t available = memory_available_in_meminfo();
  for_each_cgroup([&](const std::string& folder) {
    const auto limit = read_number(folder + "/memory.max");
    const auto used = read_number(folder + "/memory.current");
    if (limit && used) available = std::min(available, std::max<int64_t>(0, *limit - *used));
  });
  // cgroup v1
  const auto limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const auto used = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  if (limit && used) available = std::min(available, std::max<int64_t>(0, *limit - *used));
  return available;
}

}  // namespace baton::tensor
