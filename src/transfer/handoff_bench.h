// What a pull moves per second beside what this machine can do at all, in one run: the report of `baton bench handoff`.
//
// Every line is the best of several rounds. A pull starts when P has sealed its blocks, as it has by the time a proxy
// has carried the params to D, and ends when D has verified every unit; sealing has a line of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::transfer {

struct HandoffBenchOptions {
  std::vector<int64_t> megabytes = {64, 256};  // of KV, 1e6 bytes
  int rounds = 5;
  bool machine = true;  // lines of memcpy, hashing and raw TCP
  bool grids = true;    // between unequal grids too
};

struct HandoffLine {
  std::string group;  // the model's shape and the size
  std::string what;
  int64_t bytes = 0;  // 0: a time alone
  double seconds = 0;
  double limit_gbs = 0;  // of the copy below which this can't be; 0: none named
  double gbs() const { return static_cast<double>(bytes) / seconds / 1e9; }
};

// Calls `take` with every line as it is measured. kInvalidArgument for options out of range; kResourceExhausted and the
// connectors' errors as they come. Blocks; the pulls run on the connectors' threads.
Result<void> run_handoff_bench(const HandoffBenchOptions& options, const std::function<void(const HandoffLine&)>& take);

}  // namespace baton::transfer
