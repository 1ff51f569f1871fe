#include "models/rank_share.h"

#include "models/layers/team.h"

namespace baton::models {

Result<RankShare> RankShare::make(const RankSetup& setup, const parallel::GridLimits& limits,
                                  const std::string& where) {
  const parallel::RankPlace& place = setup.place;
  if (const auto fits = parallel::check_grid(place.sizes, limits); !fits) return fail(fits.error().with_context(where));
  if (setup.group.size() != place.sizes.team_size() || setup.group.rank() != place.team_rank) {
    return fail(Code::kInvalidArgument, "{}: rank {} of a group of {} can't be rank {} of a team of {}", where,
                setup.group.rank(), setup.group.size(), place.team_rank, place.sizes.team_size());
  }
  if (place.stage < 0 || place.stage >= place.sizes.pp || place.dp_rank < 0 || place.dp_rank >= place.sizes.dp) {
    return fail(Code::kInvalidArgument, "{}: stage {} and replica {} are not in the grid {}", where, place.stage,
                place.dp_rank, place.sizes.text());
  }
  const bool exchanges = place.sizes.expert_parallel && place.sizes.dp > 1 && limits.experts > 0;
  if (exchanges && place.team_rank == 0) {
    const ReplicaExchange* replicas = setup.replicas;
    if (replicas == nullptr || replicas->size() != place.sizes.dp || replicas->rank() != place.dp_rank) {
      return fail(Code::kInvalidArgument, "{}: experts over {} replicas need an exchange between them", where,
                  place.sizes.dp);
    }
  }
  auto stages = parallel::stage_layers(limits.layers, place.sizes.pp, setup.layer_partition);
  if (!stages) return fail(stages.error().with_context(where));
  RankShare share;
  share.place_ = place;
  share.group_ = setup.group;
  share.replicas_ = exchanges ? setup.replicas : nullptr;
  share.layers_ = (*stages)[static_cast<size_t>(place.stage)];
  return share;
}

parallel::Share RankShare::columns(int64_t total) const { return TeamStep::columns_of(total, group_); }

}  // namespace baton::models
