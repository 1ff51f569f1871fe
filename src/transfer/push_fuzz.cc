// Layerwise frames as an engine that has passed the handshake might send them: what is stored lies within the grant's
// blocks and nowhere else, nothing is stored twice, and the grant counts as complete only when all of it has come.
//
// A step: a byte, then how a frame differs from an honest one. The bytes of an honest push are zeroes.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/byte_codec.h"
#include "transfer/fsm_test_support.h"
#include "transfer/push_leg.h"

namespace {

using namespace baton;
using namespace baton::transfer;
using namespace baton::transfer::testing;

constexpr int64_t kTokens = 10;
constexpr int64_t kSkipped = 4;
constexpr int32_t kFirstBlock = 5, kSlot = 3;

void require(bool holds) {
  if (!holds) std::abort();
}

class Push {
 public:
  Push()
      : pull_{.request_id = "r",
              .blocks = {BlockId(kFirstBlock), BlockId(kFirstBlock + 1), BlockId(kFirstBlock + 2)},
              .token_count = kTokens,
              .skip_tokens = kSkipped,
              .state_slot = kSlot},
        leg_(std::make_shared<const ReshardPlan>(kHoldings, kHoldings, 0), pull_) {}

  void step(ByteReader& input) {
    wire::PushData data{.grant_id = 1};
    data.state = (input.get<uint8_t>() & 1) != 0;
    const auto& all = data.state ? kAllState : kAllUnits;
    data.rank = input.get<uint8_t>();
    data.span = {.first_entry = input.get<uint8_t>(),
                 .entry_count = all.entry_count ^ input.get<uint8_t>(),
                 .first_unit = input.get<uint8_t>(),
                 .unit_count = all.unit_count ^ input.get<uint8_t>()};
    data.first_place = (data.state ? 0u : 1u) ^ input.get<uint16_t>();
    data.place_count = (data.state ? 1u : 2u) ^ input.get<uint16_t>();
    const uint8_t sums = input.get<uint8_t>();
    data.checksums.resize((span_units(data.span) * data.place_count) % 5000 ^ sums);
    int64_t bytes = input.get<int16_t>();
    for (uint32_t i = 0; i < std::min<uint32_t>(data.place_count, 100); ++i) bytes += honest_bytes(data, i);
    // As it arrives: only what the decoder lets through.
    const auto frame = wire::encode_frame(data);
    const auto message = wire::decode_body(14, std::span(frame).subspan(wire::kFrameHeaderBytes));
    if (message) take(std::get<wire::PushData>(*message), bytes);
  }

  void check() const {
    require(leg_.valid_tokens() >= kSkipped && leg_.valid_tokens() <= kTokens);
    if (leg_.complete()) require(leg_.state_complete() && leg_.valid_tokens() == kTokens);
  }

 private:
  static int64_t honest_bytes(const wire::PushData& data, uint32_t index) {
    const int64_t left = kTokens - (int64_t{data.first_place} + index) * kBlockSize;
    const auto tokens = data.state ? 1 : static_cast<int>(std::clamp<int64_t>(left, 0, kBlockSize));
    const auto& geometry = kHoldings->geometry(0, data.state);
    return span_fits(geometry, data.span) ? span_bytes(geometry, data.span, tokens) : 0;
  }

  void take(const wire::PushData& data, int64_t payload_bytes) {
    PartMoves moves;
    const auto placed = leg_.place(data, payload_bytes, moves);
    if (!placed) return require(moves.moves.runs.empty() && moves.repeats.empty());
    const auto payload = static_cast<size_t>(payload_bytes);
    const auto arena = static_cast<size_t>(kHoldings->arenas.data_bytes());
    require(transport::check_inside(moves.moves, payload, arena).has_value());
    for (const auto& run : moves.moves.runs) {
      if (run.to == transport::kNotStored) continue;
      require(in_grant(run.to, run.bytes));
      require(stored_.emplace(run.to).second);
    }
    leg_.stored(data);
    check();
  }

  static bool in_grant(int64_t to, int64_t bytes) {
    const int64_t blocks = kLayout.block_offset(kFirstBlock + kSkipped / kBlockSize);
    const int64_t slot = kLayout.slot_offset(kSlot);
    return (to >= blocks && to + bytes <= blocks + 2 * kBlockBytes) || (to >= slot && to + bytes <= slot + kStateBytes);
  }

  const Pull pull_;
  PushLeg leg_;
  std::set<int64_t> stored_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ByteReader input(std::as_bytes(std::span(data, size)));
  Push push;
  for (int steps = 0; steps < 100 && input.ok() && input.remaining() > 0; ++steps) push.step(input);
  push.check();
  return 0;
}
