// What this machine can do: instruction set, usable cores, memory within the cgroup's limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace baton::tensor {

// The numeric profiles there are kernels for. Each is bit-stable in itself; two may differ in bf16 sums.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512 };  // kAvx512: F, BW, DQ, VL, VNNI, BF16, VBMI

std::string_view isa_name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);
// The best this machine runs.
Isa detect_isa();

// Cores this process may use: affinity mask and cgroup CPU quota, at least 1.
int usable_cores();
// Bytes of memory this process may still use: the smaller of MemAvailable and what the cgroup leaves.
int64_t available_memory_bytes();

}  // namespace baton::tensor
