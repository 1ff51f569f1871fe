// Writes the seed corpus of member_fuzz: an offer, an address, and steps of few and of many sequences.
//
//   member_fuzz_seeds FOLDER
#include "base/fuzz_seed_files.h"
#include "engine/ranks/member_offers.h"
#include "engine/ranks/step_codec.h"

namespace {

using namespace baton;
using namespace baton::engine;

std::vector<std::byte> step_of(int sequences, bool with_state) {
  StepPlan plan;
  for (int i = 0; i < sequences; ++i) {
    auto& one = plan.sequences.emplace_back();
    one.tokens.assign(i % 2 == 0 ? 1 : 3, 5 + i);
    one.first_position = i;
    one.block_tables = {{BlockId(2 * i), BlockId(2 * i + 1)}};
    one.sample_rows = {static_cast<int32_t>(one.tokens.size()) - 1};
    if (with_state) one.state_slot = kv::StateSlot(i % 5);
  }
  if (with_state) plan.sequences.front().state_copies = {{kv::StateSlot(0), kv::StateSlot(2)}};
  RankStep step;
  step.reused_blocks = {BlockId(3)};
  if (with_state) step.reused_slots = {2};
  lay_out(plan, step);
  return encode_step(step);
}

}  // namespace

int main(int argc, char** argv) {
  const transfer::Offer offer{.request_id = "cmpl-1",
                              .blocks = {BlockId(3), BlockId(1)},
                              .token_count = 7,
                              .last_token_id = 5,
                              .prompt = {7, 8},
                              .state_slot = 2,
                              .offer_id = 99};
  const std::string address = encode_address({.host = "127.0.0.1", .port = 36001});
  const std::vector<FuzzSeed> seeds = {
      chosen_seed(0, "offer", encode_offer(offer)),  chosen_seed(1, "address", std::as_bytes(std::span(address))),
      chosen_seed(2, "step_one", step_of(1, false)), chosen_seed(3, "step_states", step_of(3, true)),
      chosen_seed(2, "step_many", step_of(8, true)),
  };
  return write_fuzz_seeds(argc, argv, seeds);
}
