// An engine in this process, set up by the flags of `baton serve`, without its server; and batches of requests on it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/serve/model_files.h"
#include "apps/serve/served_engine.h"
#include "base/status.h"
#include "bench/metrics.h"
#include "bench/sample.h"

namespace baton::apps {

// Destroyed from the last member to the first.
struct LocalEngine {
  ServeSetup setup;
  ModelFiles files;
  std::unique_ptr<MetricRegistry> metrics;
  ServedEngine served;
  engine::Engine& engine() { return *served.engine; }
};

// `arguments`: as after `baton serve`. Prefix caching is off unless they ask for it, as vLLM's two benches have it.
// `requests`: how many may wait at once.
Result<std::unique_ptr<LocalEngine>> open_local_engine(std::vector<std::string> arguments, int64_t requests);

struct BatchResult {
  double seconds = 0;
  bool interrupted = false;
  std::vector<bench::RequestRecord> records;  // times after the start of the batch
};
// Submits all at once and waits for the last; greedy, each to its whole length. SIGINT ends it early. One at a time.
Result<BatchResult> run_batch(engine::Engine& engine, std::span<const bench::Sample> samples, bool progress);

}  // namespace baton::apps
