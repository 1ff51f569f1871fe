#include "parallel/devices.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>

#include "tensor/cpu.h"

namespace baton::parallel {
namespace {

constexpr int kDeviceNumberMax = 65535;
constexpr size_t kDevicesMax = 4096;

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

// What the calling thread may run on. hwloc leaves out what the cgroup forbids; the affinity mask is narrower still.
Result<CoreSet> allowed_threads() {
  for (size_t count = 1024; count <= (size_t{1} << 20); count *= 4) {
    cpu_set_t* mask = CPU_ALLOC(count);
    const size_t bytes = CPU_ALLOC_SIZE(count);
    if (mask == nullptr) break;
    CoreSet allowed;
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    for (size_t cpu = 0; known && cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask)) allowed.push_back(static_cast<int>(cpu));
    }
    CPU_FREE(mask);
    if (known) return allowed;
  }
  return fail(Code::kUnavailable, "the cores of this process can't be read: {}", std::strerror(errno));
}

Result<Topology> load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fail(Code::kUnavailable, "hwloc can't be started");
  Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) {
    return fail(Code::kUnavailable, "hwloc can't read this machine's topology: {}", std::strerror(errno));
  }
  return topology;
}

// The allowed threads of each physical core, in hwloc's logical order; those it doesn't know stand alone at the end.
Result<std::vector<CoreSet>> physical_cores() {
  BATON_TRY_ASSIGN(CoreSet left, allowed_threads());
  std::vector<CoreSet> cores;
  if (auto topology = load_topology()) {
    const int count = hwloc_get_nbobjs_by_type(topology->get(), HWLOC_OBJ_CORE);
    for (int i = 0; i < count; ++i) {
      const auto* core = hwloc_get_obj_by_type(topology->get(), HWLOC_OBJ_CORE, static_cast<unsigned>(i));
      CoreSet threads;
      std::erase_if(left, [&](int cpu) {
        if (hwloc_bitmap_isset(core->cpuset, static_cast<unsigned>(cpu)) == 0) return false;
        threads.push_back(cpu);
        return true;
      });
      if (!threads.empty()) cores.push_back(std::move(threads));
    }
  }
  for (const int cpu : left) cores.push_back({cpu});
  if (cores.empty()) return fail(Code::kUnavailable, "this process may use no core at all");
  return cores;
}

Result<int> parse_number(std::string_view text, std::string_view variable, std::string_view value) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kDeviceNumberMax) {
    return fail(Code::kInvalidArgument, "{}='{}': '{}' is not a device number; write numbers and ranges, such as 0,2-3",
                variable, value, text);
  }
  return number;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Result<std::vector<int>> parse_list(std::string_view variable, std::string_view value) {
  std::vector<int> ids;
  std::string_view rest = value;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view word = trimmed(rest.substr(0, comma));
    const size_t dash = word.find('-');
    BATON_TRY_ASSIGN(const int first, parse_number(trimmed(word.substr(0, dash)), variable, value));
    int last = first;
    if (dash != std::string_view::npos) {
      BATON_TRY_ASSIGN(last, parse_number(trimmed(word.substr(dash + 1)), variable, value));
      if (last < first) return fail(Code::kInvalidArgument, "{}='{}': '{}' runs backwards", variable, value, word);
    }
    if (ids.size() + static_cast<size_t>(last - first) >= kDevicesMax) {
      return fail(Code::kInvalidArgument, "{}='{}' names more than {} devices", variable, value, kDevicesMax);
    }
    for (int id = first; id <= last; ++id) {
      if (std::ranges::find(ids, id) != ids.end()) {
        return fail(Code::kInvalidArgument, "{}='{}' names device {} twice", variable, value, id);
      }
      ids.push_back(id);
    }
    if (comma == std::string_view::npos) return ids;
    rest = rest.substr(comma + 1);
  }
}

Result<int> cores_per_device(const ReadVariable& variable) {
  const std::string value = variable("BATON_CORES_PER_DEVICE");
  if (value.empty()) return 1;
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc() || end != value.data() + value.size() || count < 1 || count > 1024) {
    return fail(Code::kInvalidArgument, "BATON_CORES_PER_DEVICE is '{}'; use a number of cores from 1 to 1024", value);
  }
  return count;
}

// Whole devices of `per_device` cores; where there are fewer cores than that, one device of all.
std::vector<CoreSet> make_devices(const std::vector<CoreSet>& cores, int per_device) {
  const size_t width = std::min(static_cast<size_t>(per_device), cores.size());
  std::vector<CoreSet> devices;
  for (size_t first = 0; first + width <= cores.size(); first += width) {
    CoreSet device;
    for (size_t i = first; i < first + width; ++i) device.insert(device.end(), cores[i].begin(), cores[i].end());
    std::ranges::sort(device);
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

std::string Devices::warning(int ranks) const {
  CoreSet used;
  const int places = std::min<int>(ranks, static_cast<int>(cores.size()));
  for (int rank = 0; rank < places; ++rank) used.insert(used.end(), of_rank(rank).begin(), of_rank(rank).end());
  std::ranges::sort(used);
  const bool shared = places < ranks || std::ranges::adjacent_find(used) != used.end();
  const int distinct = static_cast<int>(std::unique(used.begin(), used.end()) - used.begin());
  if (shared) {
    return fmt::format(
        "{} ranks share {} of the {} devices that this process may use: they take turns, and steps take longer", ranks,
        std::min({distinct, places, machine_devices}), machine_devices);
  }
  if (const int usable = tensor::usable_cores(); ranks > usable) {
    return fmt::format("{} ranks on a CPU quota of {} cores: they take turns, and steps take longer", ranks, usable);
  }
  return {};
}

Result<Devices> visible_devices(const ReadVariable& variable) {
  BATON_TRY_ASSIGN(const int per_device, cores_per_device(variable));
  BATON_TRY_ASSIGN(const std::vector<CoreSet> cores, physical_cores());
  const std::vector<CoreSet> all = make_devices(cores, per_device);
  Devices devices;
  devices.machine_devices = static_cast<int>(all.size());
  for (const char* name : {"BATON_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"}) {
    const std::string value = variable(name);
    if (trimmed(value).empty()) continue;
    BATON_TRY_ASSIGN(devices.ids, parse_list(name, value));
    break;
  }
  if (devices.ids.empty()) {
    devices.ids.resize(all.size());
    std::iota(devices.ids.begin(), devices.ids.end(), 0);
  }
  for (const int id : devices.ids) devices.cores.push_back(all[static_cast<size_t>(id) % all.size()]);
  return devices;
}

Result<void> pin_this_thread(const CoreSet& cores) {
  if (cores.empty()) return fail(Code::kInvalidArgument, "a thread can't be pinned to no core");
  const size_t count = static_cast<size_t>(*std::ranges::max_element(cores)) + 1;
  cpu_set_t* mask = CPU_ALLOC(count);
  if (mask == nullptr) return fail(Code::kResourceExhausted, "no memory for a core mask");
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, mask);
  for (const int cpu : cores) CPU_SET_S(static_cast<size_t>(cpu), bytes, mask);
  const int error = pthread_setaffinity_np(pthread_self(), bytes, mask);
  CPU_FREE(mask);
  if (error == 0) return {};
  return fail(Code::kInvalidArgument, "this thread can't be pinned to core {}: {}", cores.front(),
              std::strerror(error));
}

}  // namespace baton::parallel
