#include "engine/ranks/step_codec.h"

#include <algorithm>

#include "base/byte_codec.h"

namespace baton::engine {
namespace {

// Numbers of a slice on the wire.
constexpr size_t kSliceFields = 4;
constexpr uint16_t kStepVersion = 2;

template <typename T>
void put(ByteWriter& writer, const std::vector<T>& values) {
  writer.put_array(std::span<const T>(values));
}

std::vector<int64_t> slice_fields(const RankStep& step) {
  std::vector<int64_t> fields;
  for (const auto& slice : step.slices) {
    fields.insert(fields.end(), {slice.context_len, slice.row_begin, slice.row_count, slice.state_slot});
  }
  return fields;
}

std::vector<int32_t> copy_fields(const RankStep& step) {
  std::vector<int32_t> fields;
  for (const auto& copy : step.state_copies) fields.insert(fields.end(), {copy.from.value, copy.to.value});
  return fields;
}

std::unexpected<Status> out_of_bounds(const char* what, int64_t value) {
  return fail(Code::kDataLoss, "a step of the leading process: {} {} is out of bounds", what, value);
}

Result<void> check_all(const char* what, const std::vector<int32_t>& values, int64_t begin, int64_t end) {
  for (const auto value : values) {
    if (value < begin || value >= end) return out_of_bounds(what, value);
  }
  return {};
}

// Slices follow each other, cover all rows, and have a block for each of their positions.
Result<void> check_slices(const RankStep& step, const StepLimits& limits) {
  int64_t row = 0, table_begin = 0;
  for (size_t i = 0; i < step.slices.size(); ++i) {
    const auto& slice = step.slices[i];
    const int64_t table_end = step.table_ends[i];
    if (slice.row_begin != row || slice.row_count < 1) return out_of_bounds("row", slice.row_begin);
    row += slice.row_count;
    if (slice.context_len < 0 || slice.context_len + slice.row_count > limits.max_model_len) {
      return out_of_bounds("position", slice.context_len);
    }
    if (slice.state_slot < -1 || slice.state_slot >= limits.slots) return out_of_bounds("slot", slice.state_slot);
    if (table_end < table_begin || table_end > std::ssize(step.block_tables) ||
        (table_end - table_begin) * limits.block_tokens < slice.context_len + slice.row_count) {
      return out_of_bounds("block table", table_end);
    }
    table_begin = table_end;
  }
  if (row != step.rows()) return out_of_bounds("row count", row);
  return {};
}

Result<void> check_step(const RankStep& step, const StepLimits& limits) {
  if (step.rows() > limits.max_rows || step.positions.size() != step.tokens.size()) {
    return out_of_bounds("row count", step.rows());
  }
  if (std::ssize(step.logit_rows) > limits.max_logit_rows || !std::ranges::is_sorted(step.logit_rows)) {
    return out_of_bounds("count of logit rows", std::ssize(step.logit_rows));
  }
  BATON_TRY(check_all("token", step.tokens, 0, limits.vocab_size));
  BATON_TRY(check_all("position", step.positions, 0, limits.max_model_len));
  BATON_TRY(check_all("logit row", step.logit_rows, 0, step.rows()));
  BATON_TRY(check_all("block", step.block_tables, 0, limits.blocks));
  BATON_TRY(check_all("slot", step.reused_slots, 0, limits.slots));
  BATON_TRY(check_all("slot", copy_fields(step), 0, limits.slots));
  for (const auto block : step.reused_blocks) {
    if (block.value < 0 || block.value >= limits.blocks) return out_of_bounds("block", block.value);
  }
  return check_slices(step, limits);
}

Result<void> read_step(ByteReader& reader, RankStep& step) {
  if (const auto version = reader.get<uint16_t>(); version != kStepVersion) {
    return fail(Code::kMismatch, "a step of version {}, this process knows {}: use one build of Baton for all", version,
                kStepVersion);
  }
  step.tokens = reader.get_array<int32_t>();
  step.positions = reader.get_array<int32_t>();
  step.logit_rows = reader.get_array<int32_t>();
  step.block_tables = reader.get_array<int32_t>();
  step.table_ends = reader.get_array<int64_t>();
  const auto slices = reader.get_array<int64_t>();
  const auto copies = reader.get_array<int32_t>();
  const auto blocks = reader.get_array<int32_t>();
  step.reused_slots = reader.get_array<int32_t>();
  step.push_step = reader.get<uint64_t>();
  BATON_TRY(reader.finish("a step"));
  if (slices.size() != step.table_ends.size() * kSliceFields || copies.size() % 2 != 0) {
    return out_of_bounds("count of slices", std::ssize(slices));
  }
  for (size_t i = 0; i < slices.size(); i += kSliceFields) {
    step.slices.push_back({.context_len = slices[i],
                           .row_begin = static_cast<int>(slices[i + 1]),
                           .row_count = static_cast<int>(slices[i + 2]),
                           .state_slot = static_cast<int32_t>(slices[i + 3])});
  }
  for (size_t i = 0; i < copies.size(); i += 2) {
    step.state_copies.push_back({kv::StateSlot(copies[i]), kv::StateSlot(copies[i + 1])});
  }
  for (const auto block : blocks) step.reused_blocks.emplace_back(block);
  return {};
}

}  // namespace

std::vector<std::byte> encode_step(const RankStep& step) {
  ByteWriter writer;
  writer.put(kStepVersion);
  put(writer, step.tokens);
  put(writer, step.positions);
  put(writer, step.logit_rows);
  put(writer, step.block_tables);
  put(writer, step.table_ends);
  put(writer, slice_fields(step));
  put(writer, copy_fields(step));
  std::vector<int32_t> blocks;
  for (const auto block : step.reused_blocks) blocks.push_back(block.value);
  put(writer, blocks);
  put(writer, step.reused_slots);
  writer.put(step.push_step);
  return writer.take();
}

Result<void> decode_step(std::span<const std::byte> bytes, const StepLimits& limits, RankStep& step) {
  step.clear();
  ByteReader reader(bytes);
  auto read = read_step(reader, step);
  if (read) read = check_step(step, limits);
  if (!read) {
    step.clear();
    return read;
  }
  step.link();
  return {};
}

}  // namespace baton::engine
