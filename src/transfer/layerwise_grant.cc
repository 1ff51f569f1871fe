#include "transfer/layerwise_grant.h"

#include <algorithm>

#include "transfer/layerwise_units.h"

namespace baton::transfer {

Grant::Grant(Pull pull, const kv::CacheLayout& layout) : pull_(std::move(pull)), layout_(layout) {
  const int64_t block_size = layout_.blocks.block_size();
  first_block_ = static_cast<uint32_t>(pull_.skip_tokens / block_size);
  end_block_ = static_cast<uint32_t>((pull_.token_count + block_size - 1) / block_size);
  first_block_ = std::min(first_block_, end_block_);
  marks_.resize(size_t{end_block_ - first_block_} * static_cast<size_t>(layout_.blocks.entry_count()));
  if (pull_.state_slot) state_marks_.resize(static_cast<size_t>(layout_.states.entry_count()));
  state_missing_ = static_cast<int64_t>(state_marks_.size());
  missing_ = static_cast<int64_t>(marks_.size()) + state_missing_;
}

Result<void> Grant::check(const wire::PushOpen& open) const {
  if (open.token_count != pull_.token_count) {
    return fail(Code::kMismatch, "tokens: wanted {}, the prefill engine computed {}", pull_.token_count,
                open.token_count);
  }
  if (open.prompt != pull_.prompt) return fail(Code::kMismatch, "the KV pushed is that of another prompt");
  if (pull_.state_slot && !open.has_state) return fail(Code::kMismatch, "the push has no recurrent state");
  return {};
}

wire::PushOpenReply Grant::answer() const {
  return {.grant_id = pull_.params.baton_offer_id,
          .skip_tokens = int64_t{first_block_} * layout_.blocks.block_size(),
          .want_state = pull_.state_slot.has_value()};
}

int Grant::tokens_of(uint32_t block) const {
  const int64_t block_size = layout_.blocks.block_size();
  return static_cast<int>(std::min(block_size, pull_.token_count - int64_t{block} * block_size));
}

std::vector<bool>::reference Grant::mark(uint32_t block, uint32_t entry) {
  return marks_[size_t{block - first_block_} * static_cast<size_t>(layout_.blocks.entry_count()) + entry];
}

Result<void> Grant::check_frame(const wire::PushData& data, int64_t payload_bytes) const {
  const auto& geometry = data.state ? layout_.states : layout_.blocks;
  const auto entries = data.state ? state_marks_.size() : static_cast<size_t>(geometry.entry_count());
  if (data.entry >= entries) return fail(Code::kDataLoss, "entry {} of {} was pushed", data.entry, entries);
  const uint32_t first = data.state ? 0 : first_block_, end = data.state ? 1 : end_block_;
  if (data.first_block < first || data.first_block >= end || data.block_count > end - data.first_block) {
    return fail(Code::kDataLoss, "{} blocks from {} were pushed, wanted are {} to {}", data.block_count,
                data.first_block, first, end);
  }
  const kv::EntryRange entry{static_cast<int>(data.entry), 1};
  int64_t bytes = 0;
  for (uint32_t i = 0; i < data.block_count; ++i) {
    bytes += geometry.sealed_bytes(data.state ? 1 : tokens_of(data.first_block + i), entry);
  }
  const auto units = static_cast<size_t>(geometry.unit_count(entry)) * data.block_count;
  if (payload_bytes != bytes || data.checksums.size() != units) {
    return fail(Code::kDataLoss, "a push of {} bytes with {} checksums, not {} with {}", payload_bytes,
                data.checksums.size(), bytes, units);
  }
  return {};
}

Result<transport::Moves> Grant::place(const wire::PushData& data, int64_t payload_bytes) const {
  BATON_TRY(check_frame(data, payload_bytes));
  const auto& geometry = data.state ? layout_.states : layout_.blocks;
  const kv::EntryRange entry{static_cast<int>(data.entry), 1};
  const auto units = static_cast<size_t>(geometry.unit_count(entry));
  transport::Moves moves;
  int64_t at = 0;
  for (uint32_t i = 0; i < data.block_count; ++i) {
    const int tokens = data.state ? 1 : tokens_of(data.first_block + i);
    const int64_t to = data.state ? layout_.slot_offset(*pull_.state_slot)
                                  : layout_.block_offset(pull_.blocks[data.first_block + i].value);
    const auto checksums = std::span(data.checksums).subspan(i * units, units);
    append_entry_moves(geometry, at, to, tokens, static_cast<int>(data.entry), checksums, moves);
    at += geometry.sealed_bytes(tokens, entry);
  }
  return moves;
}

void Grant::stored(const wire::PushData& data, int64_t payload_bytes) {
  bytes_ += payload_bytes;
  if (data.state) {
    if (state_marks_[data.entry]) return;
    state_marks_[data.entry] = true;
    --state_missing_;
    --missing_;
    return;
  }
  for (uint32_t i = 0; i < data.block_count; ++i) {
    auto here = mark(data.first_block + i, data.entry);
    if (here) continue;
    here = true;
    --missing_;
  }
}

int64_t Grant::valid_tokens() const {
  const auto entries = static_cast<size_t>(layout_.blocks.entry_count());
  const auto first_missing = std::ranges::find(marks_, false) - marks_.begin();
  const auto blocks = int64_t{first_block_} + static_cast<int64_t>(static_cast<size_t>(first_missing) / entries);
  return std::min(pull_.token_count, blocks * layout_.blocks.block_size());
}

}  // namespace baton::transfer
