#include <unistd.h>

#include <filesystem>

#include "base/check.h"
#include "engine/engine_config.h"
#include "engine/ranks/local_executor.h"
#include "engine/ranks/rank_memory.h"
#include "engine/testing/fake_model.h"
#include "models/model.h"
#include "sim/engine_node.h"
#include "weights/random_checkpoint.h"

namespace baton::sim {
namespace {

constexpr int kLayers = 2, kHeads = 2, kHeadDim = 8;
constexpr int kVocabulary = 97;
constexpr TokenId kEndToken = 3;
// Its cache has the hash model's size.
const weights::RandomLlamaOptions kLlama{.layers = kLayers,
                                         .hidden = 32,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .head_dim = kHeads * kHeadDim,
                                         .intermediate = 32,
                                         .dtype = tensor::DType::kF32};

// The checkpoint, while this process lives.
class LlamaFile {
 public:
  LlamaFile() : path_(std::filesystem::temp_directory_path() / fmt::format("baton_sim_{}.gguf", getpid())) {
    const auto written = weights::write_random_gguf(path_, kLlama);
    BATON_CHECK(written.has_value(), "{}", written.error().to_string());
  }
  ~LlamaFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const LlamaFile& llama_file() {
  static const LlamaFile file;
  return file;
}

Result<std::unique_ptr<models::Model>> make_model(const CoreOptions& options, ComputePool& pool) {
  if (!options.llama) {
    return engine::testing::make_fake_model({.vocab_size = kVocabulary,
                                             .layers = kLayers,
                                             .kv_heads = kHeads,
                                             .head_dim = kHeadDim,
                                             .state_layers = options.state_layers});
  }
  return models::load_model(llama_file().path(), {.isa = tensor::detect_isa(), .allow_onednn = false}, pool);
}

}  // namespace

void prepare_models() { llama_file(); }

int vocabulary(bool llama) { return llama ? kLlama.vocab : kVocabulary; }

// As make_engine does for one rank, but without an engine thread around the core.
Result<std::unique_ptr<engine::EngineCore>> make_core(const CoreOptions& options, ComputePool& pool,
                                                      MetricRegistry& registry, const Clock& clock) {
  using namespace engine;
  EngineConfig config;
  config.max_model_len = 96;
  config.max_num_batched_tokens = 32;
  config.max_num_seqs = 6;
  config.block_size = options.block_size;
  config.kv_cache_dtype = "float32";
  config.prefix_caching = options.prefix_caching;
  config.recompute_scheduler = options.recompute_scheduler;
  config.test_preempt_probability = options.preempt;
  config.eos_token_ids = {kEndToken};
  config.kv_transfer.role = options.role;
  config.kv_cache_bytes = options.blocks * kLayers * 2 * kHeads * kHeadDim * 4 * options.block_size;
  BATON_TRY_ASSIGN(auto model, make_model(options, pool));
  auto ranks = RankSet::of_one(std::move(model), pool);
  BATON_TRY_ASSIGN(config, resolve_config(std::move(config), ranks->model()));
  auto shapes = rank_shapes(config, *ranks);
  if (options.state_layers > 0) config.state_cache_bytes = options.slots * cache_bytes(shapes).slot;
  BATON_TRY_ASSIGN(const auto counts, size_rank_caches(config, *ranks, shapes));
  set_counts(shapes, counts);
  EngineParts parts;
  BATON_TRY_ASSIGN(parts.host, options.make_host(host_request(*ranks, shapes, 1, options.wake)));
  BATON_TRY(make_workers(config, shapes, *parts.host, *ranks));
  BATON_TRY_ASSIGN(auto pipeline, LocalPipeline::create(*ranks, pipeline_options(config, *ranks)));
  const auto sizes = ranks->sizes();
  parts.ranks = std::move(ranks);
  parts.executor = std::make_unique<LocalExecutor>(std::move(pipeline));
  auto scheduling = scheduler_options(config);
  scheduling.depth = parts.executor->depth();
  return std::make_unique<EngineCore>(
      config, std::move(scheduling), EngineCore::Cache{.counts = counts, .block_tokens = block_tokens(config, sizes)},
      std::move(parts), EngineMetrics(registry, config, counts),
      RankMetrics(registry, sizes, config.block_size, counts.blocks), clock,
      EngineCore::Hooks{.on_end = [](const std::string&) {}, .on_leave_queue = [](const std::string&) {}});
}

}  // namespace baton::sim
