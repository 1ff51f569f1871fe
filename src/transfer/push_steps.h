// Steps that compute prompts which are pushed, while they are under way: how far each rank of this process has come.
// Pure; its owner guards it, since ranks compute on threads of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kv/geometry.h"
#include "transfer/connector.h"

namespace baton::transfer {

// Its blocks are let go of with the last job that reads them.
class PlannedPush {
 public:
  PlannedPush(PushStep step, std::function<void(const std::string& ticket)> release)
      : step_(std::move(step)), release_(std::move(release)) {}
  ~PlannedPush() { release_(step_.ticket); }
  PlannedPush(const PlannedPush&) = delete;
  PlannedPush& operator=(const PlannedPush&) = delete;
  const PushStep& step() const { return step_; }

 private:
  const PushStep step_;
  const std::function<void(const std::string&)> release_;
};
using PlannedRef = std::shared_ptr<const PlannedPush>;

// Entries of a rank that are in memory now and were not before.
struct PushJob {
  PlannedRef planned;
  int rank = 0;
  kv::EntryRange entries;
};

class PushSteps {
 public:
  // Of each rank: its cache entries.
  explicit PushSteps(std::vector<int> entry_counts) : entry_counts_(std::move(entry_counts)) {}
  // Before its step.
  void plan(PlannedRef planned);
  // The first `count` of a rank's entries are in memory; the call with all of them may come twice. What a step no
  // longer needs is added to `done`, so that its owner may let go of it outside of its lock.
  std::vector<PushJob> ready(int rank, uint64_t step, int count, std::vector<PlannedRef>& done);

 private:
  struct Step {
    std::vector<PlannedRef> planned;
    std::vector<int> ready;  // entries, by rank; -1: all, and told
    int ranks_left = 0;
  };
  const std::vector<int> entry_counts_;
  std::map<uint64_t, Step> steps_;
};

}  // namespace baton::transfer
