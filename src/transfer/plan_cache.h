// Plans between us and the peers that we meet, kept: a plan follows from what both sides hold, so that many requests,
// and many peers that are cut alike, share one. Owned by one thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transfer/reshard_plan.h"

namespace baton::transfer {

class PlanCache {
 public:
  enum class Side { kGives, kTakes };
  // Of two peers that are cut alike the blocks may still differ in number: no plan of this cache says where in the
  // peer's memory something lies.
  PlanCache(std::shared_ptr<const Holdings> ours, Side side) : ours_(std::move(ours)), side_(side) {}

  // `id`: of the request; both sides choose replicas by it. `theirs` has passed check_layout.
  Result<std::shared_ptr<const ReshardPlan>> plan(const wire::LayoutDesc& theirs, uint64_t id);

 private:
  struct Peer {
    wire::LayoutDesc layout;
    std::shared_ptr<const Holdings> holdings;
    std::map<uint32_t, std::shared_ptr<const ReshardPlan>> plans;  // by choice
  };
  Result<Peer*> peer(const wire::LayoutDesc& layout);

  const std::shared_ptr<const Holdings> ours_;
  const Side side_;
  std::vector<Peer> peers_;  // the latest last
};

}  // namespace baton::transfer
