// What this machine can do at most, measured now: the line that every report starts with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace baton::bench {

struct MachineLimits {
  int cores = 1;
  std::string isa;
  double read_one_gbs = 0, read_all_gbs = 0;          // memory reads of one core and of all, 1e9 bytes a second
  double memcpy_gbs = 0, nt_copy_gbs = 0;             // bytes copied (not read plus written) by one core
  double tcp_gbs = 0;                                 // loopback, one sender and one receiver
  double bf16_gops = 0, int8_gops = 0, f32_gops = 0;  // of all cores, in registers; 0 without AVX-512
};
// Takes about `budget_s` seconds, on every usable core.
MachineLimits measure_limits(double budget_s = 1.5);
std::string limits_text(const MachineLimits& limits);
nlohmann::ordered_json limits_json(const MachineLimits& limits);

}  // namespace baton::bench
