#include "engine/engine_core.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace baton::engine {
namespace {

GeneratedToken to_generated(SampleResult&& sample) {
  GeneratedToken token{.token = *sample.token, .logits_hash = sample.logits_hash};
  if (sample.logprobs) {
    token.logprob = sample.logprobs->own;
    token.top_logprobs = std::move(sample.logprobs->top);
  }
  return token;
}

// Prompt log-probabilities as the boundary has them: the own token first, then the best ones.
void move_prompt_results(std::vector<PromptResult>& results, bool hashes, RequestOutput& output) {
  for (auto& result : results) {
    auto& row = output.prompt_logprobs.emplace_back();
    row.push_back(result.logprobs.own);
    row.insert(row.end(), result.logprobs.top.begin(), result.logprobs.top.end());
    if (hashes) output.prompt_logits_hashes.push_back(result.logits_hash);
  }
  results.clear();
}

}  // namespace

EngineCore::EngineCore(EngineConfig config, SchedulerOptions scheduler, Cache cache, EngineParts parts,
                       EngineMetrics metrics, RankMetrics rank_metrics, const Clock& clock, Hooks hooks)
    : config_(std::move(config)),
      clock_(clock),
      hooks_(std::move(hooks)),
      parts_(std::move(parts)),
      sampler_(parts_.ranks->model().vocab_size(), config_.hash_logits, parts_.ranks->caller_pool()),
      metrics_(std::move(metrics)),
      rank_metrics_(std::move(rank_metrics)),
      blocks_({.block_count = static_cast<int>(cache.counts.blocks),
               .block_size = cache.block_tokens,
               .prefix_caching = config_.prefix_caching,
               .hash_seed = config_.hash_seed},
              [this](BlockId block) {
                parts_.host->on_block_reuse(block);
                parts_.executor->on_block_reuse(block);
                rank_metrics_.on_reuse(block);
              }),
      states_(static_cast<int>(cache.counts.slots),
              [this](kv::StateSlot slot) {
                parts_.host->on_slot_reuse(slot.value);
                parts_.executor->on_slot_reuse(slot.value);
              }),
      scheduler_(std::move(scheduler), blocks_, states_),
      handoff_(parts_.producer ? parts_.producer.get() : parts_.host->producer(), parts_.host->consumer(), blocks_,
               states_) {
  metrics_.set_totals(stats());
}

EngineCore::~EngineCore() { handoff_.revoke_all(); }

void EngineCore::submit(Submission submission) {
  const SequenceId id(next_id_++);
  Record record;
  auto sequence = make_sequence(submission, id, record);
  by_client_id_.emplace(record.id, id);
  records_.emplace(id, std::move(record));
  scheduler_.add(std::move(sequence));
}

std::unique_ptr<Sequence> EngineCore::make_sequence(Submission& submission, SequenceId id, Record& record) {
  auto& request = submission.request;
  auto sequence = std::make_unique<Sequence>(Sequence{
      .id = id,
      .priority = request.priority,
      .client = request.client,
      .tokens = request.prompt_ids,
      .prompt_count = static_cast<int64_t>(request.prompt_ids.size()),
      .given_count = static_cast<int64_t>(request.prompt_ids.size() + request.output_ids.size()),
      .sampling = SamplingState(request.sampling, request.prompt_index, request.choice_index, request.prompt_ids,
                                config_.eos_token_ids),
      .blocks = {.cache_salt = request.cache_salt},
      .may_leave = request.may_leave,
  });
  sequence->tokens.insert(sequence->tokens.end(), request.output_ids.begin(), request.output_ids.end());
  for (const auto token : request.output_ids) sequence->sampling.accept(token);
  if (request.kv_transfer) {
    const auto& transfer = *request.kv_transfer;
    sequence->remote_decode = transfer.do_remote_decode && handoff_.can_offer();
    sequence->pushes = sequence->remote_decode && handoff_.can_push();
    if (sequence->pushes && (transfer.baton_offer_id == 0 || transfer.remote_port == 0)) {
      log_warning(
          "request={} asks for its KV, but names no decode engine's grant: the layerwise connector goes with a "
          "proxy in layerwise mode",
          request.id);
      sequence->pushes = sequence->remote_decode = false;
    }
    if (transfer.do_remote_prefill && handoff_.can_pull()) {
      sequence->remote_prefill =
          RemotePrefill{.token_count = transfer.remote_num_prompt_tokens, .last_token = transfer.last_token_id};
    } else if (transfer.do_remote_prefill) {
      log_warning("request={} offers KV of engine {}, but this engine pulls none (--kv-transfer-config): recomputing",
                  request.id, transfer.remote_engine_id);
    }
  }
  record = {.id = std::move(request.id),
            .client = std::move(request.client),
            .on_output = std::move(submission.on_output),
            .times = {.arrival = submission.arrival},
            .seed_drawn = submission.seed_drawn,
            .seed = *request.sampling.seed,
            .max_tokens = request.sampling.max_tokens,
            .transfer = std::move(request.kv_transfer)};
  return sequence;
}

void EngineCore::abort(const std::string& id, FinishReason reason) {
  // What is under way may end it; and no step may write into blocks that are free. A failure shows at the next step.
  if (by_client_id_.contains(id)) settle();
  const auto found = by_client_id_.find(id);
  if (found == by_client_id_.end()) return handoff_.revoke(id);
  end_early(found->second, reason, std::nullopt);
}

void EngineCore::reset_prefix_cache() {
  blocks_.reset_prefix_cache();
  states_.forget_all();
}

void EngineCore::fail_all(const Status& error) {
  for (const auto id : scheduler_.ids()) end_early(id, FinishReason::kError, error);
}

Result<bool> EngineCore::step() {
  if (failure_) return fail(*failure_);
  BATON_TRY(parts_.executor->health());
  poll_handoff();
  end_overdue();
  auto plan = scheduler_.schedule();
  for (const auto id : plan.leaving) end_early(id, FinishReason::kRecomputed, std::nullopt);
  start_transfers(plan);
  bool progressed = !plan.empty() || plan.preempted > 0 || !under_way_.empty();
  bool computes = !plan.sequences.empty();
  if (parts_.replicas) {
    BATON_TRY_ASSIGN(computes, parts_.replicas->step_together(computes));
    progressed |= computes;
  }
  const bool full_steps = !plan.sequences.empty();
  if (computes) BATON_TRY(begin(std::move(plan)));
  if (!full_steps || static_cast<int>(under_way_.size()) >= parts_.executor->depth()) BATON_TRY(finish_oldest());
  if (!progressed) unstick();
  metrics_.set_totals(stats());
  return progressed;
}

void EngineCore::leave(const std::string& reason) {
  if (parts_.replicas) parts_.replicas->leave(reason);
  parts_.executor->leave(reason);
}

void EngineCore::leave_group() {
  if (parts_.replicas) parts_.replicas->leave("the engine of this replica has ended");
}

void EngineCore::poll_handoff() {
  for (auto& loaded : handoff_.poll()) take_loaded(std::move(loaded));
}

void EngineCore::take_loaded(Handoff::Loaded loaded) {
  auto& record = records_.at(loaded.sequence);
  const auto& result = loaded.result;
  record.transferred_bytes = result.bytes;
  record.transfer_seconds = result.seconds;
  auto* sequence = scheduler_.find(loaded.sequence);
  const auto& policy = config_.kv_transfer.on_load_failure;
  const bool fails = !result.outcome && ((!policy.recompute_blocks && result.valid_tokens < record.wanted_tokens) ||
                                         (!policy.recompute_state && record.wanted_state && !result.state_valid));
  if (!result.outcome) {
    ++transfer_failures_;
    log_warning("request={} transfer_failed={:?} valid_tokens={} of {} policy={}", record.id,
                result.outcome.error().to_string(), result.valid_tokens, sequence->size(),
                fails ? "fail" : "recompute");
  }
  if (const int64_t had = sequence->computed; result.valid_tokens > had) {
    rank_metrics_.on_tokens(had, result.valid_tokens - had, sequence->blocks.table);
  }
  if (result.outcome && result.last_token) {
    sequence->expected_first_token = record.transfer->last_token_id = result.last_token;
  }
  scheduler_.finish_load(loaded.sequence, result.valid_tokens, result.state_valid);
  metrics_.on_load(record.wanted_external, sequence->external_tokens);
  if (fails) {
    end_early(loaded.sequence, FinishReason::kError, result.outcome.error().with_context("KV transfer"));
  }
}

void EngineCore::start_transfers(StepPlan& plan) {
  for (const auto id : plan.declined) {
    const auto& record = records_.at(id);
    const auto count = record.transfer->remote_num_prompt_tokens;
    if (count != 0 && count != scheduler_.find(id)->size()) {
      ++transfer_failures_;
      log_warning("request={} has {} tokens, but the prefill engine computed {}: recomputing", record.id,
                  scheduler_.find(id)->size(), count);
    }
    handoff_.decline(*record.transfer);
  }
  for (auto& load : plan.loads) {
    auto& record = records_.at(load.sequence);
    record.wanted_external = load.token_count - load.skip_tokens;
    record.wanted_tokens = load.token_count;
    record.wanted_state = load.state_slot.has_value();
    // Layerwise, D is the first to know the request: the seed it drew travels on from here.
    if (record.seed_drawn && !record.transfer->metaserver.empty()) record.transfer->baton_seed = record.seed;
    handoff_.start(record.id, *record.transfer, std::move(load));
  }
}

Result<void> EngineCore::begin(StepPlan plan) {
  const auto started = clock_.now();
  for (const auto& step : plan.sequences) {
    auto& record = records_.at(step.sequence);
    if (auto& sequence = *scheduler_.find(step.sequence); sequence.pushes) {
      plan.pushes |= handoff_.push(plan.number, record.id, *record.transfer, sequence,
                                   step.first_position + static_cast<int64_t>(step.tokens.size()));
    }
    auto& times = record.times;
    if (times.scheduled) continue;
    times.scheduled = started;
    hooks_.on_leave_queue(record.client);
  }
  BATON_TRY(parts_.executor->begin(plan));
  under_way_.push_back(std::move(plan));
  return {};
}

Result<void> EngineCore::finish_oldest() {
  if (under_way_.empty()) return {};
  BATON_TRY_ASSIGN(const float* logits, parts_.executor->finish());
  const auto plan = std::move(under_way_.front());
  under_way_.pop_front();
  if (plan.sequences.empty()) return {};  // another replica's step
  std::vector<const SamplingState*> states;
  for (const auto& step : plan.sequences) states.push_back(&scheduler_.find(step.sequence)->sampling);
  auto updates = scheduler_.update(plan, sampler_.sample(plan, states, logits));
  for (const auto& step : plan.sequences) {
    rank_metrics_.on_tokens(step.first_position, static_cast<int64_t>(step.tokens.size()), step.block_tables[0]);
  }
  rank_metrics_.publish();
  const auto now = clock_.now();
  int64_t generated = 0;
  for (const auto& update : updates) generated += static_cast<int64_t>(update.taken.size());
  // Before the outputs: whoever hears of a request's end finds its tokens counted.
  metrics_.on_step(plan.row_count, generated);
  for (auto& update : updates) take_update(std::move(update), now);
  return {};
}

void EngineCore::settle() {
  while (!under_way_.empty() && !failure_) {
    if (const auto finished = finish_oldest(); !finished) failure_ = finished.error();
  }
}

void EngineCore::take_update(SequenceUpdate update, TimePoint now) {
  auto& sequence = *update.sequence;
  const auto id = sequence.id;
  auto& record = records_.at(id);
  auto output = make_output(record, sequence);
  if (!update.taken.empty()) {
    metrics_.on_tokens(record.times, now);
    if (!record.times.first_token) {
      record.times.first_token = now;
      metrics_.on_prompt(sequence.given_count, sequence.cached_tokens, sequence.external_tokens);
    }
    record.times.last_token = now;
  }
  if (update.first_token_mismatch) {
    ++mismatches_;
    log_error("request={} first_token={} differs from the prefill engine's {}: KV or weights differ", record.id,
              *update.taken.front().token, *record.transfer->last_token_id);
  }
  for (auto& sample : update.taken) output.tokens.push_back(to_generated(std::move(sample)));
  output.finish = update.finish;
  output.stop_token = update.stop_token;
  output.error = std::move(update.error);
  if (update.save) {
    output.kv_transfer = handoff_.offer(record.id, id, *std::move(update.save));
    if (record.seed_drawn) output.kv_transfer->baton_seed = record.seed;
  }
  if (update.finish) return deliver_last(id, sequence, std::move(output));
  record.on_output(std::move(output));
}

// Nothing runs, nothing is on its way, and the head of the queue does not fit: no later step would differ.
void EngineCore::unstick() {
  if (scheduler_.running() > 0 || handoff_.pending()) return;
  const auto id = scheduler_.first_waiting();
  if (!id) return;
  log_error("request={} can't be scheduled with {} of {} blocks and {} of {} state slots free", records_.at(*id).id,
            blocks_.free_blocks(), blocks_.block_count(), states_.available(), states_.slot_count());
  end_early(*id, FinishReason::kError, Status(Code::kInternal, "the request can't be scheduled"));
}

// Those that have waited for too long without a start, and fetch nothing either, are better asked for elsewhere.
void EngineCore::end_overdue() {
  constexpr auto kEvery = std::chrono::milliseconds(100);
  const auto now = clock_.now();
  if (config_.max_queue_s <= 0 || now - overdue_looked_at_ < kEvery) return;
  overdue_looked_at_ = now;
  std::vector<SequenceId> overdue;
  for (const auto& [id, record] : records_) {
    if (record.times.scheduled || seconds_between(record.times.arrival, now) < config_.max_queue_s) continue;
    const auto* sequence = scheduler_.find(id);
    if (sequence->stage == SequenceStage::kWaiting && sequence->blocks.table.empty()) overdue.push_back(id);
  }
  for (const auto id : overdue) {
    end_early(
        id, FinishReason::kError,
        Status(Code::kUnavailable, fmt::format("the request has waited for {} s (--max-queue-seconds) and has not "
                                               "started: try again later",
                                               config_.max_queue_s)));
  }
}

RequestOutput EngineCore::make_output(Record& record, Sequence& sequence) {
  RequestOutput output;
  output.id = record.id;
  output.seed = record.seed;
  if (std::exchange(record.first_output_made, true)) return output;
  output.cached_tokens = sequence.cached_tokens;
  output.external_tokens = sequence.external_tokens;
  output.transferred_bytes = record.transferred_bytes;
  output.transfer_seconds = record.transfer_seconds;
  move_prompt_results(sequence.prompt_results, config_.hash_logits, output);
  return output;
}

void EngineCore::end_early(SequenceId id, FinishReason reason, std::optional<Status> error) {
  auto removed = scheduler_.remove(id);
  if (removed.sequence->stage == SequenceStage::kLoading)
    handoff_.cancel(id, std::move(removed.still_held), removed.still_held_state);
  auto& record = records_.at(id);
  if (removed.sequence->remote_prefill) handoff_.decline(*record.transfer);
  auto output = make_output(record, *removed.sequence);
  output.finish = reason;
  output.error = std::move(error);
  deliver_last(id, *removed.sequence, std::move(output));
}

void EngineCore::deliver_last(SequenceId id, const Sequence& sequence, RequestOutput output) {
  auto node = records_.extract(id);
  auto& record = node.mapped();
  by_client_id_.erase(record.id);
  if (sequence.pushes && !output.kv_transfer) handoff_.abandon_push(record.id, id);
  metrics_.on_finish(
      {.times = record.times,
       .end = clock_.now(),
       .prompt_tokens = sequence.given_count,
       .generated_tokens = sequence.new_tokens(),
       .computed_prompt_tokens = sequence.given_count - sequence.cached_tokens - sequence.external_tokens,
       .max_tokens = record.max_tokens,
       .reason = *output.finish});
  if (!record.times.scheduled) hooks_.on_leave_queue(record.client);
  hooks_.on_end(record.id);
  record.on_output(std::move(output));
}

EngineStats EngineCore::stats() const {
  const auto& counters = scheduler_.counters();
  return {.running = scheduler_.running(),
          .waiting = scheduler_.waiting() + scheduler_.loading(),
          .loading = scheduler_.loading(),
          .kv_blocks_total = blocks_.block_count(),
          .kv_blocks_used = blocks_.used_blocks(),
          .state_slots_total = states_.slot_count(),
          .state_slots_held = states_.held(),
          .state_snapshots = states_.snapshots(),
          .prefix_queries = counters.prefix_queries,
          .prefix_hits = counters.prefix_hits,
          .preemptions = counters.preemptions,
          .recomputed = counters.recomputed,
          .last_token_mismatches = mismatches_,
          .transfer_failures = transfer_failures_,
          .group_busy = parts_.replicas && !parts_.replicas->resting() ? 1 : 0,
          .offers_held = handoff_.offers_held()};
}

}  // namespace baton::engine
