#include "engine/kv_budget.h"

#include <algorithm>

namespace baton::engine {
namespace {

std::string readable(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes < (int64_t{1} << 30) ? fmt::format("{:.2f} MiB", value / (1 << 20))
                                    : fmt::format("{:.2f} GiB", value / (1 << 30));
}

int64_t budget_bytes(const KvBudgetInput& input, int64_t one_request_bytes) {
  if (input.kv_cache_bytes > 0) return input.kv_cache_bytes;
  const auto usable = static_cast<double>(input.available_bytes + input.weight_bytes) * input.memory_utilization;
  const int64_t left = static_cast<int64_t>(usable) - input.weight_bytes - input.scratch_bytes;
  const int64_t cap = std::max({kDefaultKvBytesMax, input.available_bytes / 4, one_request_bytes});
  return std::clamp<int64_t>(left, 0, cap);
}

}  // namespace

Result<int64_t> kv_block_count(const KvBudgetInput& input) {
  const auto& geometry = input.geometry;
  const int64_t block_bytes = geometry.block_bytes();
  const int64_t one_request_blocks = (input.max_model_len + geometry.block_size - 1) / geometry.block_size;
  const int64_t budget = budget_bytes(input, one_request_blocks * block_bytes);
  const int64_t blocks = std::min(budget / block_bytes, int64_t{1} << 30);
  if (blocks < one_request_blocks) {
    return fail(Code::kFailedPrecondition,
                "To serve at least one request with the model's max seq len ({}), {} KV cache is needed, which "
                "is larger than the available KV cache memory ({}). Based on the available memory, the "
                "estimated maximum model length is {}. Try increasing `--gpu-memory-utilization` (now {:.2f}) or "
                "`--kv-cache-memory-bytes`, or decreasing `--max-model-len`.",
                input.max_model_len, readable(one_request_blocks * block_bytes), readable(budget),
                blocks * geometry.block_size, input.memory_utilization);
  }
  const int64_t kept = std::min(blocks, one_request_blocks * input.max_num_seqs);
  if (kept * block_bytes > input.available_bytes) {
    return fail(Code::kFailedPrecondition,
                "`--kv-cache-memory-bytes` asks for {}, but this process may use {} more: ask for less",
                readable(kept * block_bytes), readable(input.available_bytes));
  }
  return kept;
}

}  // namespace baton::engine
