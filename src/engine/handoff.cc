#include "engine/handoff.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace baton::engine {
namespace {

std::string transfer_id(const std::string& client_id, SequenceId sequence) {
  return fmt::format("{}-{:x}", client_id, sequence.value);
}

std::optional<int32_t> slot_number(std::optional<kv::StateSlot> slot) {
  return slot ? std::optional(slot->value) : std::nullopt;
}

}  // namespace

Handoff::Handoff(transfer::KvProducer* producer, transfer::KvConsumer* consumer, kv::BlockManager& blocks,
                 kv::StatePool& states)
    : producer_(producer), consumer_(consumer), blocks_(blocks), states_(states) {}

wire::KvTransferParams Handoff::offer(const std::string& client_id, SequenceId sequence, KvSave save) {
  const auto id = transfer_id(client_id, sequence);
  offers_.emplace(id, Offered{.client_id = client_id, .blocks = save.blocks, .state = save.state_slot});
  offers_of_client_.emplace(client_id, id);
  return producer_->offer({.request_id = id,
                           .blocks = std::move(save.blocks),
                           .token_count = save.token_count,
                           .last_token_id = save.last_token,
                           .prompt = save.prompt,
                           .state_slot = slot_number(save.state_slot)});
}

bool Handoff::push(uint64_t step, const std::string& client_id, const wire::KvTransferParams& params,
                   Sequence& sequence, int64_t computed) {
  const int64_t given = sequence.given_count;
  const int64_t begin = sequence.pushed_tokens, end = std::min(computed, given);
  if (end <= begin) return false;
  while (sequence.push_id == 0) sequence.push_id = push_ids_.next();
  sequence.pushed_tokens = end;
  const auto& table = sequence.blocks.table;
  std::vector<BlockId> blocks(table.begin() + begin / blocks_.block_size(), table.begin() + blocks_.blocks_for(end));
  const auto ticket = fmt::format("push {}", next_ticket_++);
  blocks_.hold_blocks(blocks);
  pinned_.emplace(ticket, blocks);
  producer_->plan_push({.step = step,
                        .request_id = transfer_id(client_id, sequence.id),
                        .push_id = sequence.push_id,
                        .host = params.remote_host,
                        .port = params.remote_port,
                        .grant_id = params.baton_offer_id,
                        .token_count = given,
                        .prompt = wire::prompt_digest(std::span(sequence.tokens).first(static_cast<size_t>(given))),
                        .has_state = states_.slot_count() > 0,
                        .begin_token = begin,
                        .end_token = end,
                        .blocks = std::move(blocks),
                        .ticket = ticket});
  return true;
}

void Handoff::abandon_push(const std::string& client_id, SequenceId sequence) {
  producer_->revoke(transfer_id(client_id, sequence));
}

void Handoff::start(const std::string& client_id, const wire::KvTransferParams& params, KvLoad load) {
  const auto id = transfer_id(client_id, load.sequence);
  loads_.emplace(id, Loading{.sequence = load.sequence, .held = {}, .held_state = {}});
  transfer_of_.emplace(load.sequence, id);
  consumer_->start({.request_id = id,
                    .params = params,
                    .blocks = std::move(load.blocks),
                    .token_count = load.token_count,
                    .skip_tokens = load.skip_tokens,
                    .prompt = load.prompt,
                    .state_slot = slot_number(load.state_slot)});
}

void Handoff::cancel(SequenceId sequence, std::vector<BlockId> held, std::optional<kv::StateSlot> held_state) {
  const auto transfer = transfer_of_.find(sequence);
  BATON_CHECK(transfer != transfer_of_.end(), "sequence {} loads nothing", sequence);
  auto& loading = loads_.at(transfer->second);
  loading.cancelled = true;
  loading.held = std::move(held);
  loading.held_state = held_state;
  consumer_->cancel(transfer->second);
  transfer_of_.erase(transfer);
}

void Handoff::decline(const wire::KvTransferParams& params) {
  if (consumer_ != nullptr) consumer_->decline(params);
}

void Handoff::revoke(const std::string& client_id) {
  const auto [begin, end] = offers_of_client_.equal_range(client_id);
  for (auto entry = begin; entry != end; ++entry) producer_->revoke(entry->second);
}

void Handoff::revoke_all() {
  for (const auto& [id, offered] : offers_) producer_->revoke(id);
}

std::vector<Handoff::Loaded> Handoff::poll() {
  if (producer_ != nullptr) free_released();
  std::vector<Loaded> loaded;
  if (consumer_ == nullptr) return loaded;
  for (auto& result : consumer_->poll_completed()) {
    const auto found = loads_.find(result.request_id);
    if (found == loads_.end()) {
      log_warning("handoff unknown_pull={} ignored", result.request_id);
      continue;
    }
    auto loading = std::move(found->second);
    loads_.erase(found);
    if (loading.cancelled) {
      blocks_.release_blocks(loading.held);
      if (loading.held_state) states_.release(*loading.held_state);
      continue;
    }
    transfer_of_.erase(loading.sequence);
    loaded.push_back({loading.sequence, std::move(result)});
  }
  return loaded;
}

void Handoff::free_released() {
  for (const auto& id : producer_->poll_released()) {
    if (auto pinned = pinned_.extract(id)) {
      blocks_.release_blocks(pinned.mapped());
      continue;
    }
    const auto found = offers_.find(id);
    if (found == offers_.end()) {
      log_warning("handoff unknown_offer={} ignored", id);
      continue;
    }
    blocks_.release_blocks(found->second.blocks);
    if (found->second.state) states_.release(*found->second.state);
    const auto [begin, end] = offers_of_client_.equal_range(found->second.client_id);
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second != id) continue;
      offers_of_client_.erase(entry);
      break;
    }
    offers_.erase(found);
  }
}

}  // namespace baton::engine
