// exactness MODEL [REQUESTS [KV_CACHE_DTYPE [INDEXER_DTYPE]]]: serves one workload in every way the contract names, and
// compares the logits' hashes.
//
// Prints a row per way and exits 1 unless every request is equal in all of them (docs/exactness.md).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "engine_under_test.h"
#include "workload.h"

namespace baton::exactness {
namespace {

using engine::EngineRequest;
using engine::KvRole;

struct Run {
  std::string model_path;
  std::string kv_cache_dtype = "auto", indexer_cache_dtype = "auto";
  std::string only;  // columns whose names hold this; empty: all
  bool keeps_state = false;
  std::vector<EngineRequest> requests;
  Traces expected;
  int failures = 0;
};

engine::EngineConfig base_config() {
  engine::EngineConfig config;
  config.max_model_len = 4096;
  config.max_num_batched_tokens = 2048;
  config.max_num_seqs = 64;
  config.kv_cache_bytes = int64_t{1} << 30;
  config.prefix_caching = false;
  return config;
}

void report(Run& run, const std::string& name, const Traces& traces, const std::string& note = "") {
  int equal = 0;
  std::string first_difference;
  for (const auto& [id, trace] : traces) {
    if (trace.same_answer(run.expected.at(id))) {
      ++equal;
    } else if (first_difference.empty()) {
      first_difference = fmt::format("{} {}", id, trace.error);
    }
  }
  const bool good = equal == static_cast<int>(run.requests.size());
  if (!good) ++run.failures;
  fmt::print("{:<34} {:016x} {:>4} of {:<4} {} {}\n", name, combined_hash(traces), equal, run.requests.size(),
             good ? "equal" : "DIFFERENT, first: " + first_difference, note);
  std::fflush(stdout);
}

// Starts an engine, gives it to `body`, and reports what that returns.
bool column(Run& run, const std::string& name, const EngineSetup& setup,
            const std::function<Traces(engine::Engine&)>& body, const std::string& note = "") {
  if (name.find(run.only) == std::string::npos) return true;
  auto started = start_engine(setup);
  if (!started) {
    fmt::print("{:<34} {}\n", name, started.error().to_string());
    const bool too_small = setup.sizes.replica_size() > 1 && started.error().code() == Code::kInvalidArgument;
    if (!too_small) ++run.failures;
    return false;
  }
  report(run, name, body(*started->engine), note);
  return true;
}

EngineSetup setup_of(const Run& run) {
  EngineSetup setup{.model_path = run.model_path, .config = base_config()};
  setup.config.kv_cache_dtype = run.kv_cache_dtype;
  setup.config.indexer_cache_dtype = run.indexer_cache_dtype;
  return setup;
}

void run_single_engine_columns(Run& run) {
  const auto together = [&](engine::Engine& engine) { return run_together(engine, run.requests); };
  EngineSetup setup = setup_of(run);
  column(run, "batched", setup, together);
  for (const int chunk : {16, 512}) {
    setup = setup_of(run);
    setup.config.max_num_batched_tokens = chunk;
    setup.config.max_num_seqs = std::min(chunk, setup.config.max_num_seqs);
    column(run, fmt::format("chunked at {}", chunk), setup, together);
  }
  const auto twice = [&](engine::Engine& engine) {
    run_together(engine, run.requests);
    auto again = run_together(engine, run.requests);
    int64_t cached = 0;
    for (const auto& [id, trace] : again) cached += trace.cached_tokens;
    if (cached == 0) again.begin()->second.error = "no prefix was ever hit";
    return again;
  };
  setup = setup_of(run);
  setup.config.prefix_caching = true;
  column(run, "after a prefix hit", setup, twice);
  if (run.keeps_state) {
    setup.config.state_snapshot_interval = 64;
    setup.config.test_preempt_probability = 0.05;
    column(run, "states kept every 64 tokens", setup, twice);
  }
  setup = setup_of(run);
  setup.config.test_preempt_probability = 0.05;
  column(run, "with forced preemption", setup, [&](engine::Engine& engine) {
    auto traces = run_together(engine, run.requests);
    if (engine.stats().preemptions == 0) traces.begin()->second.error = "nothing was preempted";
    return traces;
  });
  setup = setup_of(run);
  setup.threads = 2;
  column(run, "2 threads", setup, together);
  for (const int block_size : {128, 768}) {
    setup = setup_of(run);
    setup.config.block_size = block_size;
    column(run, fmt::format("block size {}", block_size), setup, together);
  }
  setup = setup_of(run);
  setup.allow_onednn = false;
  column(run, "oneDNN off", setup, together);
}

// Grids of ranks; under context parallelism a block is the interleave. A grid that the model is too small for is said,
// and is no failure.
void run_grid_columns(Run& run) {
  constexpr int kInterleave = 768;
  for (const parallel::GridSizes& sizes :
       {parallel::GridSizes{.tp = 2}, parallel::GridSizes{.pp = 2}, parallel::GridSizes{.pp = 2, .tp = 2},
        parallel::GridSizes{.pcp = 2}, parallel::GridSizes{.tp = 4, .dcp = 4},
        parallel::GridSizes{.pp = 2, .pcp = 2, .tp = 2, .dcp = 2}}) {
    EngineSetup setup = setup_of(run);
    setup.sizes = sizes;
    setup.sizes.interleave = kInterleave;
    if (sizes.context_size() > 1) setup.config.block_size = kInterleave;
    const auto name = "ranks " + sizes.text();
    column(run, name, setup, [&](engine::Engine& engine) { return run_together(engine, run.requests); });
  }
}

// However slow the machine is, D comes before an offer ends.
constexpr double kLeaseSeconds = 3600;

// P computes each prompt and one token; D takes the KV over and goes on.
Traces run_group(engine::Engine& prefill, engine::Engine& decode, const std::vector<EngineRequest>& requests) {
  std::vector<EngineRequest> first = requests;
  for (auto& request : first) {
    request.sampling.max_tokens = 1;
    request.kv_transfer.emplace().do_remote_decode = true;
  }
  const Traces offered = run_together(prefill, first);
  std::vector<EngineRequest> second = requests;
  for (auto& request : second) request.kv_transfer = offered.at(request.id).kv_transfer;
  auto traces = run_together(decode, second);
  for (auto& [id, trace] : traces) {
    const int64_t prompt = static_cast<int64_t>(
        std::find_if(requests.begin(), requests.end(), [&](const auto& r) { return r.id == id; })->prompt_ids.size());
    if (prompt > 1 && trace.external_tokens == 0) trace.error = "nothing was handed over";
  }
  return traces;
}

// P holds what it offers until D has it, and has slots of recurrent state for so many only.
Traces run_disaggregated(engine::Engine& prefill, engine::Engine& decode, const std::vector<EngineRequest>& requests) {
  constexpr size_t kGroup = 32;
  Traces traces;
  for (size_t begin = 0; begin < requests.size(); begin += kGroup) {
    const auto end = std::min(requests.size(), begin + kGroup);
    traces.merge(run_group(prefill, decode,
                           {requests.begin() + static_cast<long>(begin), requests.begin() + static_cast<long>(end)}));
  }
  return traces;
}

void run_disaggregated_column(Run& run, const std::string& transport) {
  const std::string name = fmt::format("P and D over {}", transport);
  if (name.find(run.only) == std::string::npos) return;
  EngineSetup prefill = setup_of(run);
  prefill.config.kv_transfer = {
      .role = KvRole::kProducer, .engine_id = "p", .lease_s = kLeaseSeconds, .transport = transport};
  EngineSetup decode = setup_of(run);
  decode.config.kv_transfer = {.role = KvRole::kConsumer, .engine_id = "d", .transport = transport};
  auto p = start_engine(prefill);
  auto d = start_engine(decode);
  if (!p || !d) {
    fmt::print("{:<34} {}\n", name, (p ? d : p).error().to_string());
    ++run.failures;
    return;
  }
  auto traces = run_disaggregated(*p->engine, *d->engine, run.requests);
  const auto stats = d->engine->stats();
  if (stats.last_token_mismatches != 0) traces.begin()->second.error = "last_token_id mismatched";
  report(run, name, traces, fmt::format("(last_token_id mismatches: {})", stats.last_token_mismatches));
}

// Unseeded requests draw their seed in the hand-off; here P draws, and the same request alone with that seed must
// agree.
void run_unseeded_hand_off(Run& run) {
  const std::string name = "unseeded, P drew the seed";
  if (name.find(run.only) == std::string::npos) return;
  std::vector<EngineRequest> unseeded = run.requests;
  for (auto& request : unseeded) {
    request.sampling.temperature = 1;
    request.sampling.seed.reset();
  }
  EngineSetup prefill = setup_of(run);
  prefill.config.kv_transfer = {.role = KvRole::kProducer, .engine_id = "p", .lease_s = kLeaseSeconds};
  EngineSetup decode = setup_of(run);
  decode.config.kv_transfer = {.role = KvRole::kConsumer, .engine_id = "d"};
  auto p = start_engine(prefill);
  auto d = start_engine(decode);
  auto alone = start_engine(setup_of(run));
  if (!p || !d || !alone) {
    ++run.failures;
    return;
  }
  auto traces = run_disaggregated(*p->engine, *d->engine, unseeded);
  for (auto& request : unseeded) request.sampling.seed = traces.at(request.id).seed;
  Run replay = run;
  replay.failures = 0;
  replay.requests = unseeded;
  replay.expected = run_together(*alone->engine, unseeded);
  report(replay, name, traces, fmt::format("(last_token_id mismatches: {})", d->engine->stats().last_token_mismatches));
  run.failures += replay.failures;
}

int run_all(Run run, int request_count) {
  auto alone = start_engine(setup_of(run));
  if (!alone) {
    fmt::print(stderr, "exactness: {}\n", alone.error().to_string());
    return 1;
  }
  WorkloadOptions options{.requests = request_count, .vocab_size = alone->engine->vocab_size()};
  options.longest_prompt =
      std::min(options.longest_prompt, alone->engine->config().max_model_len - options.max_tokens - 1);
  run.requests = make_workload(options);
  run.keeps_state = alone->engine->stats().state_slots_total > 0;
  int64_t prompt_tokens = 0;
  for (const auto& request : run.requests) prompt_tokens += static_cast<int64_t>(request.prompt_ids.size());
  fmt::print("{} requests, {} prompt tokens\n", request_count, prompt_tokens);
  run.expected = run_one_by_one(*alone->engine, run.requests);
  for (auto& request : run.requests) {
    // The seed that was drawn for an unseeded request belongs to its answer from here on.
    request.sampling.seed = run.expected.at(request.id).seed;
  }
  report(run, "alone (the reference)", run.expected);
  alone->engine.reset();

  run_single_engine_columns(run);
  run_grid_columns(run);
  run_disaggregated_column(run, "shm");
  run_disaggregated_column(run, "tcp");
  run_unseeded_hand_off(run);
  fmt::print("{}\n", run.failures == 0 ? "All equal." : "THE CONTRACT IS BROKEN.");
  return run.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton::exactness

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: exactness MODEL [REQUESTS [KV_CACHE_DTYPE [INDEXER_DTYPE [ONLY]]]]\n");
    return 2;
  }
  baton::exactness::Run run{.model_path = argv[1]};
  if (argc > 3) run.kv_cache_dtype = argv[3];
  if (argc > 4) run.indexer_cache_dtype = argv[4];
  if (argc > 5) run.only = argv[5];
  return baton::exactness::run_all(std::move(run), argc > 2 ? std::atoi(argv[2]) : 200);
}
