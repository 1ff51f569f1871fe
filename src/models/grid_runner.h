// What the tests of ranks share: a script of steps run by all ranks of a grid, threads of this process, each with its
// share of the weights and a cache of its own. One rank is the trivial grid.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/latent_cache.h"
#include "models/model.h"

namespace baton::models {

struct ScriptPart {
  int sequence = 0;
  int count = 0;  // of its next tokens
};

// Sequences, and the steps that compute them.
struct GridScript {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<std::vector<ScriptPart>> steps;
  // Of each sequence, if not empty: so many of its first tokens are in the cache before the first step, with made-up
  // contents that are the same in every grid.
  std::vector<int> cached;
};

struct GridOptions {
  tensor::DType cache_dtype = tensor::DType::kBF16;
  int block_size = 16;  // without context ranks; with them a rank's block is the interleave
  int threads = 1;      // of a rank
  std::vector<int> layer_partition;
  std::string quantization;
  tensor::Isa isa = tensor::detect_isa();
  bool taps = false;
};

struct GridOutcome {
  std::vector<std::vector<float>> logits;  // of each step
  std::vector<std::vector<float>> taps;    // of each step, [layer][row][hidden], with GridOptions::taps
  // (entry of the whole model, head, sequence): its tokens' bytes; states: (-1 - layer, head, sequence).
  std::map<std::tuple<int, int, int>, std::vector<std::byte>> cache;
  std::map<std::string, int64_t> positions_held;  // of each rank, of one entry, over all sequences
  int64_t weight_bytes = 0;                       // of all ranks
  std::string fingerprint;
  bool operator==(const GridOutcome& o) const { return logits == o.logits && taps == o.taps && cache == o.cache; }
};

class GridRunner {
 public:
  GridRunner(std::string path, const parallel::GridSizes& sizes, GridOptions options, int dp_rank = 0,
             ReplicaExchange* replicas = nullptr)
      : path_(std::move(path)), sizes_(sizes), options_(std::move(options)), dp_rank_(dp_rank), replicas_(replicas) {}

  GridOutcome run(const GridScript& script, int64_t hidden = 0) {
    script_ = &script;
    hidden_ = hidden;
    make_steps();
    GridOutcome outcome;
    std::vector<std::vector<float>> between(steps_.size());
    for (int stage = 0; stage < sizes_.pp && !testing::Test::HasFatalFailure(); ++stage) {
      run_stage(stage, between, outcome);
    }
    return outcome;
  }

 private:
  struct Step {
    std::vector<int32_t> tokens, positions, logit_rows;
    std::vector<kernels::SequenceSlice> slices;
  };
  struct Rank {
    std::unique_ptr<Model> model;
    CacheNeeds needs;
    std::vector<int64_t> offsets;
    std::vector<std::byte> blocks, states;
    kernels::CacheView view;
    parallel::RankPlace place;
    std::string error;
  };

  bool split() const { return sizes_.context_size() > 1; }
  int block_size() const { return split() ? sizes_.interleave : options_.block_size; }
  int places_a_block() const { return sizes_.context_size(); }

  void make_steps() {
    steps_.clear();
    tables_.clear();
    const auto& sequences = script_->sequences;
    blocks_ = 0;
    for (const auto& tokens : sequences) {
      const int64_t covered = int64_t{block_size()} * places_a_block();
      tables_.emplace_back(static_cast<size_t>((std::ssize(tokens) + covered - 1) / covered));
      blocks_ += static_cast<int>(tables_.back().size());
    }
    // Blocks of sequences lie in between each other, and backwards.
    int next = blocks_;
    for (size_t i = 0; next > 0; ++i) {
      for (auto& table : tables_) {
        if (i < table.size()) table[i] = --next;
      }
    }
    std::vector<int> done = script_->cached;
    done.resize(sequences.size());
    for (const auto& parts : script_->steps) {
      Step step;
      for (const ScriptPart& part : parts) {
        const auto s = static_cast<size_t>(part.sequence);
        step.slices.push_back({.block_table = tables_[s].data(),
                               .context_len = done[s],
                               .row_begin = static_cast<int>(step.tokens.size()),
                               .row_count = part.count,
                               .state_slot = part.sequence});
        for (int i = 0; i < part.count; ++i) {
          step.tokens.push_back(sequences[s][static_cast<size_t>(done[s])]);
          step.positions.push_back(done[s]++);
        }
      }
      const int rows = static_cast<int>(step.tokens.size());
      if (steps_.size() % 2 == 0 && rows < 512) {
        step.logit_rows.resize(static_cast<size_t>(rows));
        std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
      } else {
        for (const auto& slice : step.slices) step.logit_rows.push_back(slice.row_begin + slice.row_count - 1);
      }
      steps_.push_back(std::move(step));
    }
    max_rows_ = max_logit_rows_ = 1;
    for (const Step& step : steps_) {
      max_rows_ = std::max(max_rows_, static_cast<int>(step.tokens.size()));
      max_logit_rows_ = std::max(max_logit_rows_, static_cast<int>(step.logit_rows.size()));
    }
  }

  void load(Rank& rank, int stage, int team_rank, parallel::Team& team) {
    rank.place = {.sizes = sizes_, .dp_rank = dp_rank_, .stage = stage, .team_rank = team_rank};
    ComputePool pool({.threads = 1});
    LoadOptions load{.isa = options_.isa, .quantization = options_.quantization};
    load.rank = {.place = rank.place,
                 .layer_partition = options_.layer_partition,
                 .group = parallel::Group(team, team_rank),
                 .replicas = team_rank == 0 ? replicas_ : nullptr};
    auto model = load_model(path_, load, pool);
    ASSERT_TRUE(model.has_value()) << model.error().to_string();
    rank.model = std::move(*model);
    make_cache(rank);
  }

  void make_cache(Rank& rank) {
    rank.needs = rank.model->cache_needs();
    ASSERT_EQ(rank.needs.paged.size(), rank.needs.parts.size());
    kernels::CacheView& view = rank.view;
    view.block_size = block_size();
    for (kernels::PagedEntry& entry : rank.needs.paged) {
      entry.dtype = options_.cache_dtype;
      rank.offsets.push_back(view.block_stride);
      view.block_stride += kernels::entry_block_bytes(entry, block_size());
    }
    view.entries = rank.needs.paged;
    view.entry_offsets = rank.offsets;
    rank.blocks.assign(static_cast<size_t>(view.block_stride * blocks_), std::byte{0xff});
    view.blocks = rank.blocks.data();
    view.head_stride = rank.needs.state_head_bytes;
    view.layer_stride = rank.needs.state_heads * view.head_stride;
    view.slot_stride = rank.needs.state_layers * view.layer_stride;
    rank.states.assign(static_cast<size_t>(view.slot_stride) * script_->sequences.size(), std::byte{0xff});
    view.states = rank.states.data();
    view.context = {.size = sizes_.context_size(), .rank = rank.place.context_rank()};
  }

  // Uniform in -1 to 1, of the place among the whole model's cache.
  static float made_up(uint64_t kind, uint64_t sequence, uint64_t token, uint64_t element) {
    uint64_t z = (kind << 54) + (sequence << 46) + (token << 20) + element + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<float>(static_cast<double>(z >> 40) / 8388608.0 - 1);
  }

  void fill_cache(Rank& rank) {
    ComputePool pool({.threads = 1});
    for (size_t s = 0; s < script_->cached.size(); ++s) {
      for (size_t e = 0; e < rank.needs.paged.size(); ++e) fill_entry(rank, e, s, pool);
      for (int l = 0; l < rank.needs.state_layers; ++l) {
        const EntryPart& part = rank.needs.state_parts[static_cast<size_t>(l)];
        for (int h = 0; h < rank.needs.state_heads; ++h) {
          auto* values = reinterpret_cast<float*>(rank.view.state(l).at(static_cast<int64_t>(s), h));
          for (int64_t i = 0; i < rank.needs.state_head_bytes / 4; ++i) {
            values[i] = 0.1f * made_up(static_cast<uint64_t>(512 + part.index), s,
                                       static_cast<uint64_t>(part.first_head + h), static_cast<uint64_t>(i));
          }
        }
      }
    }
  }

  void fill_entry(Rank& rank, size_t e, size_t s, ComputePool& pool) {
    const kernels::PagedEntry& entry = rank.needs.paged[e];
    const EntryPart& part = rank.needs.parts[e];
    const int64_t rows = script_->cached[s], head_width = entry.dim + entry.rope_dim;
    const bool pairs = entry.kind == kernels::PagedKind::kKeysValues;
    const int64_t width = head_width * entry.heads * (pairs ? 2 : 1);
    std::vector<float> values(static_cast<size_t>(rows * width));
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        // Keys and values of a head lie side by side in what is made up.
        const int64_t half = i / (head_width * entry.heads), head = i / head_width % entry.heads;
        const int64_t element = ((part.first_head + head) * 2 + half) * head_width + i % head_width;
        values[static_cast<size_t>(t * width + i)] =
            made_up(static_cast<uint64_t>(part.index), s, static_cast<uint64_t>(t), static_cast<uint64_t>(element));
      }
    }
    const kernels::SequenceSlice slice = {.block_table = tables_[s].data(), .row_count = static_cast<int>(rows)};
    const int entry_index = static_cast<int>(e);
    if (pairs) {
      kernels::write_kv(rank.view.keys_values(entry_index), 0, {&slice, 1}, values.data(), width,
                        values.data() + width / 2, width, options_.isa, pool);
    } else if (entry.kind == kernels::PagedKind::kLatent) {
      kernels::write_latents(rank.view.tokens(entry_index), {&slice, 1}, values.data(), width,
                             values.data() + entry.dim, width, options_.isa, pool);
    } else {
      kernels::write_index_keys(rank.view.tokens(entry_index), {&slice, 1}, values.data(), width, options_.isa, pool);
    }
  }

  void run_stage(int stage, std::vector<std::vector<float>>& between, GridOutcome& outcome) {
    const int size = sizes_.team_size();
    parallel::Team team(size);
    std::vector<Rank> ranks(static_cast<size_t>(size));
    for (int m = 0; m < size; ++m) ASSERT_NO_FATAL_FAILURE(load(ranks[static_cast<size_t>(m)], stage, m, team));
    std::vector<std::vector<std::byte*>> peers(ranks.size());
    for (Rank& rank : ranks) {
      auto& own = peers[static_cast<size_t>(rank.place.team_rank)];
      for (int c = 0; c < sizes_.context_size(); ++c) {
        own.push_back(ranks[static_cast<size_t>(rank.place.context_peer(c))].blocks.data());
      }
      rank.view.context_blocks = own;
      fill_cache(rank);
    }
    std::vector<std::vector<float>> out(steps_.size()), logits(steps_.size());
    std::vector<std::vector<float>> taps(steps_.size());
    Model& first = *ranks[0].model;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const int64_t rows = std::ssize(steps_[i].tokens);
      ASSERT_EQ(std::ssize(between[i]), first.stage_in_floats(rows));
      out[i].assign(static_cast<size_t>(first.stage_out_floats(rows)), -1.0f);
      logits[i].assign(steps_[i].logit_rows.size() * static_cast<size_t>(first.vocab_size()), -1.0f);
      if (options_.taps) taps[i].assign(static_cast<size_t>(rows * hidden_) * kTapLayers, 0);
    }
    std::vector<std::thread> threads;
    for (Rank& rank : ranks) {
      threads.emplace_back([&] {
        try {
          run_rank(rank, between, out, logits, taps);
        } catch (const parallel::GroupBroken& broken) {
          rank.error = broken.what();
        }
        if (!rank.error.empty()) team.break_up(rank.error);
      });
    }
    for (auto& thread : threads) thread.join();
    for (Rank& rank : ranks) ASSERT_EQ(rank.error, "") << rank.place.text();
    between = std::move(out);
    if (stage == sizes_.pp - 1) outcome.logits = std::move(logits);
    if (options_.taps && outcome.taps.empty()) outcome.taps.resize(taps.size());
    for (size_t i = 0; options_.taps && i < taps.size(); ++i) {
      outcome.taps[i].resize(taps[i].size());
      for (size_t j = 0; j < taps[i].size(); ++j) outcome.taps[i][j] += taps[i][j];
    }
    for (Rank& rank : ranks) collect(rank, outcome);
  }

  void run_rank(Rank& rank, const std::vector<std::vector<float>>& in, std::vector<std::vector<float>>& out,
                std::vector<std::vector<float>>& logits, std::vector<std::vector<float>>& taps) {
    ComputePool pool({.threads = options_.threads, .spin_us = 0});
    const auto prepared = rank.model->prepare(max_rows_, max_logit_rows_, options_.threads);
    if (!prepared) {
      rank.error = prepared.error().to_string();
      return;
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      std::vector<float*> tapped;
      for (int64_t l = 0; options_.taps && l < kTapLayers; ++l) {
        tapped.push_back(taps[i].data() + l * std::ssize(step.tokens) * hidden_);
      }
      rank.model->forward({.tokens = step.tokens,
                           .positions = step.positions,
                           .slices = step.slices,
                           .logit_rows = step.logit_rows,
                           .taps = tapped,
                           .cache = rank.view,
                           .stage_in = rank.place.first_stage() ? nullptr : in[i].data(),
                           .stage_out = rank.place.last_stage() ? nullptr : out[i].data()},
                          rank.place.last_stage() ? logits[i].data() : nullptr, pool);
    }
  }

  // One rank's cache into the whole model's. What several ranks hold must be the same.
  void collect(const Rank& rank, GridOutcome& outcome) {
    outcome.weight_bytes += rank.model->weight_bytes();
    outcome.fingerprint = rank.model->fingerprint();
    for (size_t e = 0; e < rank.needs.paged.size(); ++e) {
      for (int h = 0; h < rank.needs.paged[e].heads; ++h) collect_entry(rank, e, h, outcome);
    }
    for (int l = 0; l < rank.needs.state_layers; ++l) {
      const EntryPart& part = rank.needs.state_parts[static_cast<size_t>(l)];
      for (int h = 0; h < rank.needs.state_heads; ++h) {
        for (int s = 0; s < static_cast<int>(script_->sequences.size()); ++s) {
          const std::byte* at = rank.view.state(l).at(s, h);
          const bool fresh = outcome.cache
                                 .emplace(std::tuple(-1 - part.index, part.first_head + h, s),
                                          std::vector(at, at + rank.needs.state_head_bytes))
                                 .second;
          EXPECT_TRUE(fresh) << "a head's state on two ranks";
        }
      }
    }
  }

  void collect_entry(const Rank& rank, size_t e, int head, GridOutcome& outcome) {
    const kernels::PagedEntry& entry = rank.needs.paged[e];
    const EntryPart& part = rank.needs.parts[e];
    const int64_t token = kernels::entry_token_bytes(entry),
                  halves = entry.kind == kernels::PagedKind::kKeysValues ? 2 : 1;
    for (size_t s = 0; s < script_->sequences.size(); ++s) {
      const int64_t length = std::ssize(script_->sequences[s]);
      auto& bytes = outcome.cache[{part.index, part.first_head + head, static_cast<int>(s)}];
      auto& seen = seen_[{part.index, part.first_head + head, static_cast<int>(s)}];
      bytes.resize(static_cast<size_t>(length * token * halves));
      seen.resize(static_cast<size_t>(length));
      for (int64_t t = 0; t < length; ++t) {
        if (!rank.view.context.holds(t, block_size())) continue;
        if (e == 0 && head == 0) ++outcome.positions_held[rank.place.text()];
        const int64_t place = t / block_size();
        const std::byte* block = rank.view.blocks + rank.view.entry_offsets[e] +
                                 tables_[s][static_cast<size_t>(place / places_a_block())] * rank.view.block_stride;
        for (int64_t half = 0; half < halves; ++half) {
          const std::byte* at = block + ((half * entry.heads + head) * block_size() + t % block_size()) * token;
          std::byte* to = bytes.data() + (t * halves + half) * token;
          if (seen[static_cast<size_t>(t)] != 0) {
            EXPECT_EQ(std::memcmp(at, to, static_cast<size_t>(token)), 0) << rank.place.text() << " position " << t;
          }
          std::copy_n(at, token, to);
        }
        seen[static_cast<size_t>(t)] = 1;
      }
    }
  }

  static constexpr int64_t kTapLayers = 16;

  const std::string path_;
  const parallel::GridSizes sizes_;
  const GridOptions options_;
  const int dp_rank_;
  ReplicaExchange* const replicas_;
  const GridScript* script_ = nullptr;
  int64_t hidden_ = 0;
  std::vector<Step> steps_;
  std::vector<std::vector<int32_t>> tables_;
  int blocks_ = 0, max_rows_ = 1, max_logit_rows_ = 1;
  std::map<std::tuple<int, int, int>, std::vector<char>> seen_;
};

// Sequences of random tokens, in steps that mix prompt chunks of many and of few rows with single tokens.
inline GridScript random_script(std::mt19937& random, int vocab, int sequences, int longest) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  GridScript script;
  std::vector<int> done(static_cast<size_t>(sequences));
  for (int s = 0; s < sequences; ++s) {
    std::vector<int32_t> tokens(static_cast<size_t>(longest / 2 + below(longest / 2)));
    for (int32_t& token : tokens) token = below(vocab);
    script.sequences.push_back(std::move(tokens));
  }
  int64_t left = 1;
  while (left > 0) {
    std::vector<ScriptPart> parts;
    left = 0;
    const int kind = below(3);
    for (int s = 0; s < sequences; ++s) {
      const auto i = static_cast<size_t>(s);
      const int rest = static_cast<int>(script.sequences[i].size()) - done[i];
      const int count = std::min(rest, kind == 0 ? 1 : 1 + below(kind == 1 ? 5 : 40));
      if (count == 0 || below(4) == 0) {
        left += rest;
        continue;
      }
      done[i] += count;
      left += rest - count;
      parts.push_back({s, count});
    }
    if (!parts.empty()) script.steps.push_back(std::move(parts));
  }
  return script;
}

}  // namespace baton::models
