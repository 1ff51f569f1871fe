// What a model's steps cost beside what the machine can do, both measured in turn in one run: a step of one sequence
// reads the active weights once, so its limit is the read bandwidth; a prompt's is the peak of the dot instructions.
//   decode_bench [--threads 1,2] [--rows 1,8] [--contexts 256] [--prefill N] [--rounds N] [--no-steps] MODEL...
//
// For each model: loading (to the first token) beside copies of as many bytes; then steps of decode and of a prompt.
// Weights of a step: every matrix but the embedding; of experts those that rows choose if they choose evenly.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/matmul_peak.h"
#include "models/model.h"
#include "tensor/buffer.h"
#include "tensor/float_convert.h"
#include "weights/checkpoint.h"
#include "weights/weight_formats.h"

namespace baton::models {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int> threads = {1, 2}, rows = {1}, contexts = {256};
  int prefill = 512, rounds = 5, steps = 8;
  bool run_steps = true;
};

template <typename Body>
double seconds_of(const Body& body) {
  const auto begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// What a step must read and multiply, of the whole model.
struct Work {
  double dense_bytes = 0, expert_bytes = 0;  // expert: of all experts
  double dense_bf16 = 0, dense_int8 = 0, expert_bf16 = 0,
         expert_int8 = 0;  // operations a row; expert: one expert of each layer
  double experts = 0, top_k = 0;
  double file_bytes = 0;

  // Of `rows` rows that choose experts evenly and apart.
  double bytes(int rows) const {
    if (experts == 0) return dense_bytes;
    return dense_bytes + expert_bytes * (1 - std::pow(1 - top_k / experts, rows));
  }
  double seconds_at_peak(int rows, double bf16, double int8) const {
    return rows * ((dense_bf16 + expert_bf16 * top_k) / bf16 + (dense_int8 + expert_int8 * top_k) / int8);
  }
};

double number_of(const nlohmann::json& config, std::initializer_list<const char*> names) {
  for (const nlohmann::json* in : {&config, config.contains("text_config") ? &config["text_config"] : &config}) {
    for (const char* name : names) {
      if (in->contains(name) && (*in)[name].is_number()) return (*in)[name].get<double>();
    }
  }
  return 0;
}

Work work_of(const weights::Checkpoint& checkpoint) {
  Work work;
  work.experts = number_of(checkpoint.config(), {"n_routed_experts", "num_experts", "num_local_experts"});
  work.top_k = number_of(checkpoint.config(), {"num_experts_per_tok", "num_experts_per_token"});
  auto formats = weights::WeightFormats::open(checkpoint, "");
  BATON_CHECK(formats.has_value(), "{}", formats.error().to_string());
  for (const auto& [name, entry] : checkpoint.tensors()) {
    work.file_bytes += static_cast<double>(entry.bytes);
    std::string plain = name;
    if (name.ends_with(".weight_packed")) plain.resize(name.size() - std::string_view("_packed").size());
    if (!plain.ends_with(".weight") || name.find("embed_tokens") != std::string::npos || entry.shape.size() != 2) {
      continue;
    }
    const auto matrix = formats->find(plain, weights::Values::kSkip);
    if (!matrix) continue;
    const double elements = static_cast<double>(matrix->rows * matrix->columns);
    const double bytes = static_cast<double>(tensor::dtype_bytes(matrix->dtype, matrix->rows * matrix->columns));
    const auto format = kernels::activation_format(matrix->dtype);
    const bool bf16 = format == kernels::ActivationFormat::kBF16 || format == kernels::ActivationFormat::kF32;
    const bool expert = name.find(".experts.") != std::string::npos;
    (expert ? work.expert_bytes : work.dense_bytes) += bytes;
    if (name.find("lm_head") != std::string::npos) continue;  // one row of a prompt
    double& operations =
        expert ? (bf16 ? work.expert_bf16 : work.expert_int8) : (bf16 ? work.dense_bf16 : work.dense_int8);
    operations += 2 * elements / (expert ? work.experts : 1);
  }
  return work;
}

struct Limits {
  double read = 0, bf16 = 0, int8 = 0;  // bytes and operations a second
};

double read_rate(const tensor::Buffer& memory, ComputePool& pool) {
  volatile uint64_t sink = 0;
  const double seconds = seconds_of([&] {
    pool.parallel_for(static_cast<int64_t>(memory.size() / 64), 64, [&](int64_t begin, int64_t end) {
      sink = sink + kernels::read_lines(memory.data() + begin * 64, end - begin);
    });
  });
  return static_cast<double>(memory.size()) / seconds;
}

double peak_rate(ComputePool& pool, double (*burn)(int64_t)) {
  if (tensor::detect_isa() != tensor::Isa::kAvx512) return 1;
  volatile double operations = 0;
  const double seconds = seconds_of([&] { pool.run([&](int) { operations = burn(1'000'000); }); });
  return operations * pool.threads() / seconds;
}

// A model with the cache of some sequences of one length, all of the same contents.
class Runner {
 public:
  Runner(const std::string& path, ComputePool& pool, const Options& options)
      : sequences_(*std::ranges::max_element(options.rows)),
        length_(*std::ranges::max_element(options.contexts) + std::max(options.prefill, kBlock)) {
    LoadOptions load{.isa = tensor::detect_isa()};
    auto model = load_model(path, load, pool);
    BATON_CHECK(model.has_value(), "{}", model.error().to_string());
    model_ = std::move(*model);
    BATON_CHECK(model_->prepare(std::max(options.prefill, sequences_), sequences_, pool.threads()).has_value());
    const CacheNeeds needs = model_->cache_needs();
    entries_ = needs.paged;
    view_.block_size = kBlock;
    for (const auto& entry : entries_) {
      offsets_.push_back(view_.block_stride);
      view_.block_stride += kernels::entry_block_bytes(entry, kBlock);
    }
    view_.entries = entries_;
    view_.entry_offsets = offsets_;
    const int blocks = (length_ + kBlock - 1) / kBlock;
    cache_ = allocate(view_.block_stride * blocks);
    view_.blocks = cache_.data();
    view_.head_stride = needs.state_head_bytes;
    view_.layer_stride = needs.state_heads * view_.head_stride;
    view_.slot_stride = needs.state_layers * view_.layer_stride;
    states_ = allocate(view_.slot_stride * sequences_);
    std::memset(states_.data(), 0, states_.size());
    view_.states = states_.data();
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    logits_.resize(static_cast<size_t>(sequences_) * static_cast<size_t>(model_->vocab_size()));
  }

  // Some numbers between -1 and 1 for every token before; all entries are bf16.
  void fill() {
    auto* values = reinterpret_cast<uint16_t*>(cache_.data());
    uint32_t random = 1;
    for (size_t i = 0; i < cache_.size() / 2; ++i) {
      random = random * 1664525u + 1013904223u;
      values[i] = tensor::float_to_bf16(static_cast<float>(random >> 8) * 0x1p-23f - 1);
    }
  }

  // A step: `sequences` sequences of `rows` rows each behind `context` tokens.
  void step(int sequences, int rows, int context, ComputePool& pool) {
    const auto count = static_cast<size_t>(sequences * rows);
    std::vector<int32_t> tokens(count), positions(count), wanted;
    std::vector<kernels::SequenceSlice> slices;
    for (int s = 0; s < sequences; ++s) {
      for (int i = 0; i < rows; ++i) {
        tokens[static_cast<size_t>(s * rows + i)] = 300 + (++token_ * 7919) % (model_->vocab_size() - 300);
        positions[static_cast<size_t>(s * rows + i)] = context + i;
      }
      slices.push_back({.block_table = table_.data(),
                        .context_len = context,
                        .row_begin = s * rows,
                        .row_count = rows,
                        .state_slot = s});
      wanted.push_back((s + 1) * rows - 1);
    }
    model_->forward({.tokens = tokens, .positions = positions, .slices = slices, .logit_rows = wanted, .cache = view_},
                    logits_.data(), pool);
  }

 private:
  static constexpr int kBlock = 256;
  static tensor::Buffer allocate(int64_t bytes) {
    auto buffer = tensor::Buffer::allocate(static_cast<size_t>(std::max<int64_t>(bytes, 64)));
    BATON_CHECK(buffer.has_value(), "{}", buffer.error().to_string());
    return std::move(*buffer);
  }

  const int sequences_, length_;
  std::unique_ptr<Model> model_;
  std::vector<kernels::PagedEntry> entries_;
  std::vector<int64_t> offsets_;
  tensor::Buffer cache_, states_;
  kernels::CacheView view_;
  std::vector<int32_t> table_;
  std::vector<float> logits_;
  int token_ = 0;
};

struct Copies {
  double warm = 0, fresh = 0;  // seconds
};
// Of `bytes`, between memory that is there, and to memory that the system must give first.
Copies copy_seconds(double bytes) {
  constexpr size_t kBytes = size_t{256} << 20;
  auto from = tensor::Buffer::allocate(kBytes), to = tensor::Buffer::allocate(kBytes);
  if (!from || !to) return {};
  std::memset(from->data(), 1, kBytes);
  Copies copies;
  const double scale = bytes / static_cast<double>(kBytes);
  copies.fresh = scale * seconds_of([&] { std::memcpy(to->data(), from->data(), kBytes); });
  copies.warm = scale * seconds_of([&] { std::memcpy(to->data(), from->data(), kBytes); });
  return copies;
}

void measure_steps(Runner& runner, const Work& work, const Options& options, const tensor::Buffer& memory,
                   int threads) {
  ComputePool pool({.threads = threads});
  Limits limits{.bf16 = peak_rate(pool, kernels::burn_bf16), .int8 = peak_rate(pool, kernels::burn_vnni)};
  for (int context : options.contexts) {
    for (int rows : options.rows) {
      std::vector<double> reads, steps;
      for (int round = 0; round < options.rounds; ++round) {
        reads.push_back(read_rate(memory, pool));
        for (int i = 0; i < options.steps; ++i) {
          steps.push_back(seconds_of([&] { runner.step(rows, 1, context, pool); }));
        }
      }
      const double read = median(reads), step = median(steps), bytes = work.bytes(rows);
      fmt::print(
          "  decode  {} threads, {:2} rows, context {:5}: {:7.2f} ms (best {:7.2f}), {:4.0f} MB of weights, {:5.1f} of "
          "{:5.1f} GB/s = {:3.0f} % (best {:3.0f} %)\n",
          threads, rows, context, step * 1e3, std::ranges::min(steps) * 1e3, bytes / 1e6, bytes / step / 1e9,
          read / 1e9, 100 * bytes / step / read, 100 * bytes / std::ranges::min(steps) / std::ranges::max(reads));
    }
  }
  if (options.prefill == 0) return;
  std::vector<double> prompts;
  for (int round = 0; round < 3; ++round) {
    prompts.push_back(seconds_of([&] { runner.step(1, options.prefill, 0, pool); }));
  }
  const double ideal = work.seconds_at_peak(options.prefill, limits.bf16, limits.int8);
  fmt::print(
      "  prefill {} threads, {} rows: {:7.1f} ms, {:6.0f} token/s, {:3.0f} % of peak ({:.0f} bf16, {:.0f} int8 "
      "GOP/s)\n",
      threads, options.prefill, median(prompts) * 1e3, options.prefill / median(prompts), 100 * ideal / median(prompts),
      limits.bf16 / 1e9, limits.int8 / 1e9);
}

void measure(const std::string& path, const Options& options, const tensor::Buffer& memory) {
  auto checkpoint = weights::open_checkpoint(path);
  BATON_CHECK(checkpoint.has_value(), "{}", checkpoint.error().to_string());
  const Work work = work_of(**checkpoint);
  checkpoint->reset();
  ComputePool pool({.threads = *std::ranges::max_element(options.threads)});
  const Copies before = copy_seconds(work.file_bytes);
  const auto begin = Clock::now();
  Runner runner(path, pool, options);
  const double loaded = std::chrono::duration<double>(Clock::now() - begin).count();
  runner.step(1, 1, 0, pool);
  const double first = std::chrono::duration<double>(Clock::now() - begin).count();
  fmt::print(
      "{}\n  load    {} threads: {:.2f} s, first token {:.2f} s, {:.0f} MB; a copy of them {:.2f} s ({:.1f} x), "
      "to fresh memory {:.2f} s ({:.1f} x)\n",
      path, pool.threads(), loaded, first, work.file_bytes / 1e6, before.warm, first / before.warm, before.fresh,
      first / before.fresh);
  if (!options.run_steps) return;
  runner.fill();
  for (int threads : options.threads) measure_steps(runner, work, options, memory, threads);
}

std::vector<int> numbers(const std::string& text) {
  std::vector<int> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) all.push_back(std::stoi(word));
  return all;
}

int run(int argc, char** argv) {
  Options options;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--no-steps") {
      options.run_steps = false;
    } else if (!word.starts_with("--")) {
      paths.push_back(word);
    } else {
      if (word == "--threads") options.threads = numbers(value);
      if (word == "--rows") options.rows = numbers(value);
      if (word == "--contexts") options.contexts = numbers(value);
      if (word == "--prefill") options.prefill = std::stoi(value);
      if (word == "--rounds") options.rounds = std::stoi(value);
      ++i;
    }
  }
  auto memory = tensor::Buffer::allocate(size_t{256} << 20);
  BATON_CHECK(memory.has_value());
  std::memset(memory->data(), 1, memory->size());
  for (const std::string& path : paths) measure(path, options, *memory);
  return 0;
}

}  // namespace
}  // namespace baton::models

int main(int argc, char** argv) { return baton::models::run(argc, argv); }
