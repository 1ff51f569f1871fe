#include "transfer/push_steps.h"

#include <iterator>
#include <utility>

namespace baton::transfer {

void PushSteps::plan(PlannedRef planned) {
  auto& step = steps_[planned->step().step];
  if (step.planned.empty()) {
    step.ready.assign(entry_counts_.size(), 0);
    step.ranks_left = static_cast<int>(entry_counts_.size());
  }
  step.planned.push_back(std::move(planned));
}

std::vector<PushJob> PushSteps::ready(int rank, uint64_t number, int count, std::vector<PlannedRef>& done) {
  std::vector<PushJob> jobs;
  const auto found = steps_.find(number);
  if (found == steps_.end()) return jobs;
  auto& step = found->second;
  int& had = step.ready[static_cast<size_t>(rank)];
  if (had < 0) return jobs;
  if (count > had) {
    for (const auto& planned : step.planned) jobs.push_back({planned, rank, {had, count - had}});
    had = count;
  }
  if (count < entry_counts_[static_cast<size_t>(rank)]) return jobs;
  had = -1;
  if (--step.ranks_left == 0) {
    std::ranges::move(step.planned, std::back_inserter(done));
    steps_.erase(found);
  }
  return jobs;
}

}  // namespace baton::transfer
