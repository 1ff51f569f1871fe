#include "engine/kv_budget.h"

#include <algorithm>

namespace baton::engine {
namespace {

// Snapshots beyond one per running sequence: prefixes that requests share.
constexpr int64_t kSharedSnapshots = 32;

std::string readable(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes < (int64_t{1} << 30) ? fmt::format("{:.2f} MiB", value / (1 << 20))
                                    : fmt::format("{:.2f} GiB", value / (1 << 30));
}

int64_t one_request_blocks(const KvBudgetInput& input) {
  return (input.max_model_len + input.block_tokens - 1) / input.block_tokens;
}

// What blocks and slots may take together, where nobody said.
int64_t automatic_bytes(const KvBudgetInput& input) {
  const auto usable = static_cast<double>(input.available_bytes + input.weight_bytes) * input.memory_utilization;
  const int64_t left = static_cast<int64_t>(usable) - input.weight_bytes - input.scratch_bytes;
  const int64_t one_request = one_request_blocks(input) * input.block_bytes + kSlotsMin * input.slot_bytes;
  const int64_t cap = std::max({kDefaultKvBytesMax, input.available_bytes / 4, one_request});
  return std::clamp<int64_t>(left, 0, cap);
}

// Running sequences and as many snapshots, in at most half of the memory where that is not enough for all.
Result<int64_t> slot_count(const KvBudgetInput& input) {
  if (input.slot_bytes == 0) return 0;
  const int64_t slot_bytes = input.slot_bytes;
  if (input.state_cache_bytes == 0) {
    const int64_t wanted = 2 * input.max_num_seqs + kSharedSnapshots;
    return std::clamp(automatic_bytes(input) / 2 / slot_bytes, kSlotsMin, wanted);
  }
  const int64_t slots = std::min(input.state_cache_bytes / slot_bytes, int64_t{1} << 24);
  if (slots >= kSlotsMin) return slots;
  return fail(Code::kFailedPrecondition,
              "--state-cache-memory-bytes {}: a sequence's recurrent state takes {}, and there must be room for {}",
              readable(input.state_cache_bytes), readable(slot_bytes), kSlotsMin);
}

}  // namespace

Result<KvCounts> kv_counts(const KvBudgetInput& input) {
  BATON_TRY_ASSIGN(const int64_t slots, slot_count(input));
  const int64_t state_bytes = slots * input.slot_bytes;
  // A process may keep nothing per token: its layers all keep recurrent state.
  const int64_t block_bytes = std::max<int64_t>(input.block_bytes, 1);
  const int64_t needed = one_request_blocks(input);
  const int64_t budget =
      input.kv_cache_bytes > 0 ? input.kv_cache_bytes : std::max<int64_t>(automatic_bytes(input) - state_bytes, 0);
  const int64_t blocks = std::min(budget / block_bytes, int64_t{1} << 30);
  if (blocks < needed) {
    return fail(Code::kFailedPrecondition,
                "To serve at least one request with the model's max seq len ({}), {} KV cache is needed, which "
                "is larger than the available KV cache memory ({}). Based on the available memory, the "
                "estimated maximum model length is {}. Try increasing `--gpu-memory-utilization` (now {:.2f}) or "
                "`--kv-cache-memory-bytes`, or decreasing `--max-model-len`.",
                input.max_model_len, readable(needed * block_bytes), readable(budget), blocks * input.block_tokens,
                input.memory_utilization);
  }
  const int64_t kept = std::min(blocks, needed * input.max_num_seqs);
  if (kept * block_bytes + state_bytes > input.available_bytes) {
    return fail(Code::kFailedPrecondition,
                "`--kv-cache-memory-bytes` asks for {}{}, but this process may use {} more: ask for less",
                readable(kept * block_bytes),
                slots > 0 ? fmt::format(" and `--state-cache-memory-bytes` for {}", readable(state_bytes)) : "",
                readable(input.available_bytes));
  }
  return KvCounts{.blocks = kept, .slots = slots};
}

}  // namespace baton::engine
