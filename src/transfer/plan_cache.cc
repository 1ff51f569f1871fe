#include "transfer/plan_cache.h"

#include <algorithm>

namespace baton::transfer {
namespace {

constexpr size_t kPeersMax = 32;
constexpr uint64_t kChoices = 16;  // of replicas

}  // namespace

Result<PlanCache::Peer*> PlanCache::peer(const wire::LayoutDesc& layout) {
  const auto known = std::ranges::find(peers_, layout, &Peer::layout);
  if (known != peers_.end()) return &*known;
  BATON_TRY_ASSIGN(auto holdings, holdings_of(layout, /*block_count=*/0, /*slot_count=*/0));
  if (peers_.size() == kPeersMax) peers_.erase(peers_.begin());
  return &peers_.emplace_back(
      Peer{.layout = layout, .holdings = std::make_shared<const Holdings>(std::move(holdings)), .plans = {}});
}

Result<std::shared_ptr<const ReshardPlan>> PlanCache::plan(const wire::LayoutDesc& theirs, uint64_t id) {
  BATON_TRY_ASSIGN(Peer* const them, peer(theirs));
  const auto choice = static_cast<uint32_t>(id % kChoices);
  auto& plan = them->plans[choice];
  if (plan == nullptr) {
    const bool give = side_ == Side::kGives;
    plan = std::make_shared<const ReshardPlan>(give ? ours_ : them->holdings, give ? them->holdings : ours_, choice);
  }
  return plan;
}

}  // namespace baton::transfer
