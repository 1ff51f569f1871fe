// What the processes of an engine send each other: a step keeps to the limits of the cache, or is refused and empty; an
// offer or an address goes round, or is an error.
#include <cstdlib>

#include "engine/ranks/member_offers.h"
#include "engine/ranks/step_codec.h"

namespace {

using namespace baton::engine;

constexpr StepLimits kLimits{.max_rows = 64,
                             .max_logit_rows = 8,
                             .blocks = 40,
                             .slots = 5,
                             .block_tokens = 4,
                             .max_model_len = 128,
                             .vocab_size = 1000};

void require(bool holds) {
  if (!holds) std::abort();
}

void fuzz_step(std::span<const std::byte> bytes) {
  RankStep step;
  if (!decode_step(bytes, kLimits, step)) return require(step.rows() == 0 && step.slices.empty());
  require(step.rows() <= kLimits.max_rows && std::ssize(step.logit_rows) <= kLimits.max_logit_rows);
  // Every block a slice can reach is read here: outside the table, AddressSanitizer sees it.
  for (const auto& slice : step.slices) {
    const int64_t blocks = (slice.context_len + slice.row_count + kLimits.block_tokens - 1) / kLimits.block_tokens;
    for (int64_t b = 0; b < blocks; ++b) require(slice.block_table[b] >= 0 && slice.block_table[b] < kLimits.blocks);
    require(slice.state_slot >= -1 && slice.state_slot < kLimits.slots);
  }
  const auto again = encode_step(step);
  RankStep second;
  require(decode_step(again, kLimits, second).has_value() && encode_step(second) == again);
}

void fuzz_offer(std::span<const std::byte> bytes) {
  const auto offer = decode_offer(bytes);
  if (!offer) return;
  const auto again = encode_offer(*offer);
  const auto second = decode_offer(again);
  require(second.has_value() && encode_offer(*second) == again);
}

void fuzz_address(std::span<const std::byte> bytes) {
  const auto address = decode_address({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!address) return;
  const auto again = encode_address(*address);
  const auto second = decode_address(again);
  require(second.has_value() && encode_address(*second) == again);
}

}  // namespace

// The first byte chooses the message.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 4 == 0) {
    fuzz_offer(body);
  } else if (data[0] % 4 == 1) {
    fuzz_address(body);
  } else {
    fuzz_step(body);
  }
  return 0;
}
