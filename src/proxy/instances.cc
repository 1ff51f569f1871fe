#include "proxy/instances.h"

#include <algorithm>
#include <tuple>

namespace baton::proxy {
namespace {

double prefill_score(double load) { return load / 4 * 0.0345 + 120.0745; }

double priority(const Instance& instance) {
  return instance.role == Role::kPrefill ? instance.active_tokens + 0.3 * instance.active_kv : instance.active_tokens;
}

bool breaker_lets_through(const Instance& instance, TimePoint now) {
  if (!instance.open_until) return true;
  // Half open: one request at a time finds out whether it has recovered, until probes say so.
  return now >= *instance.open_until && instance.in_flight == 0;
}

bool usable(const Instance& instance, TimePoint now) {
  if (instance.health == Health::kDown || instance.draining || instance.join_by) return false;
  return instance.role == Role::kDecode || breaker_lets_through(instance, now);
}

}  // namespace

Result<InstanceId> Instances::add(Role role, std::string host, int port, std::optional<TimePoint> join_by) {
  if (Instance* known = get(role, host, port)) {
    if (!known->draining) return fail(Code::kAlreadyExists, "{} instance {}:{} is there", role_name(role), host, port);
    known->draining = false;
    return known->id;
  }
  Instance instance{.id = InstanceId(next_id_++), .role = role, .host = std::move(host), .port = port};
  instance.join_by = join_by;
  instances_.push_back(std::move(instance));
  return instances_.back().id;
}

bool Instances::remove(Role role, const std::string& host, int port) {
  Instance* instance = get(role, host, port);
  if (!instance) return false;
  instance->draining = true;
  drop_if_drained(instance->id);
  return true;
}

void Instances::expire(TimePoint now) {
  std::erase_if(instances_, [&](const Instance& each) { return each.join_by && now >= *each.join_by; });
}

std::optional<InstanceId> Instances::pick(Role role, TimePoint now, std::span<const InstanceId> exclude) const {
  const Instance* best = nullptr;
  for (const auto& each : instances_) {
    if (each.role != role || !usable(each, now)) continue;
    if (std::ranges::find(exclude, each.id) != exclude.end()) continue;
    const auto rank = [&](const Instance& i) {
      return std::tuple(!breaker_lets_through(i, now), i.health == Health::kSuspect, priority(i));
    };
    if (!best || rank(each) < rank(*best)) best = &each;
  }
  if (!best) return std::nullopt;
  return best->id;
}

void Instances::begin_prefill(InstanceId id, double load) {
  Instance* instance = get(id);
  if (!instance) return;
  instance->active_tokens += prefill_score(load);
  instance->active_kv += prefill_score(load);
  ++instance->in_flight;
}

void Instances::end_prefill(InstanceId id, double load) {
  Instance* instance = get(id);
  if (!instance) return;
  instance->active_tokens -= prefill_score(load);
  --instance->in_flight;
  drop_if_drained(id);
}

void Instances::release_kv(InstanceId id, double load) {
  if (Instance* instance = get(id)) instance->active_kv -= prefill_score(load);
  drop_if_drained(id);
}

void Instances::begin_decode(InstanceId id, double load) {
  Instance* instance = get(id);
  if (!instance) return;
  instance->active_tokens += load;
  ++instance->in_flight;
}

void Instances::end_decode(InstanceId id, double load) {
  Instance* instance = get(id);
  if (!instance) return;
  instance->active_tokens -= load;
  --instance->in_flight;
  drop_if_drained(id);
}

void Instances::note(InstanceId id, Outcome outcome, TimePoint now) {
  Instance* instance = get(id);
  if (!instance) return;
  if (outcome == Outcome::kOk) {
    instance->failures = instance->openings = 0;
    instance->open_until.reset();
    return;
  }
  // A probe settles it. Until then a prefill engine can be done without; a decode engine is better than none.
  if (outcome == Outcome::kUnreachable) {
    if (instance->health == Health::kUp || instance->role == Role::kPrefill)
      instance->health = instance->role == Role::kPrefill ? Health::kDown : Health::kSuspect;
    probe_wished_ = true;
  }
  if (++instance->failures < policy_.failures_to_open && !instance->open_until) return;
  const Duration pause = policy_.open_for * (1 << std::min(instance->openings, 10));
  instance->open_until = now + std::min(pause, policy_.open_for_max);
  ++instance->openings;
  instance->failures = instance->good_probes = 0;
}

void Instances::note_probe(InstanceId id, Outcome outcome, TimePoint, bool baton) {
  Instance* instance = get(id);
  if (!instance) return;
  instance->slow_probes = outcome == Outcome::kSlow ? instance->slow_probes + 1 : 0;
  switch (outcome) {
    case Outcome::kOk:
      instance->health = Health::kUp;
      instance->baton = baton;
      instance->join_by.reset();
      if (instance->open_until && ++instance->good_probes >= policy_.probes_to_close) {
        instance->open_until.reset();
        instance->failures = 0;
      }
      return;
    case Outcome::kSlow:
      // One that was down stays so until it answers.
      if (instance->slow_probes >= policy_.slow_probes_to_down) instance->health = Health::kDown;
      if (instance->health != Health::kDown) instance->health = Health::kSuspect;
      break;
    case Outcome::kUnreachable:
    case Outcome::kFailed:
      instance->health = Health::kDown;
      break;
  }
  instance->good_probes = 0;
}

const Instance* Instances::find(InstanceId id) const { return const_cast<Instances*>(this)->get(id); }

int Instances::count(Role role) const {
  return static_cast<int>(std::ranges::count_if(
      instances_, [&](const Instance& each) { return each.role == role && !each.draining && !each.join_by; }));
}

void Instances::doubt(InstanceId id) {
  Instance* instance = get(id);
  if (!instance) return;
  if (instance->health == Health::kUp) instance->health = Health::kSuspect;
  probe_wished_ = true;
}

bool Instances::any_up(Role role) const {
  return std::ranges::any_of(instances_, [&](const Instance& each) {
    return each.role == role && each.health == Health::kUp && !each.draining && !each.join_by;
  });
}

Instance* Instances::get(InstanceId id) {
  const auto found = std::ranges::find(instances_, id, &Instance::id);
  return found == instances_.end() ? nullptr : &*found;
}

Instance* Instances::get(Role role, const std::string& host, int port) {
  const auto found = std::ranges::find_if(
      instances_, [&](const Instance& each) { return each.role == role && each.host == host && each.port == port; });
  return found == instances_.end() ? nullptr : &*found;
}

// A prefill engine that still holds KV for a decode engine must stay reachable: its KV charge counts as use.
void Instances::drop_if_drained(InstanceId id) {
  std::erase_if(instances_, [&](const Instance& each) {
    return each.id == id && each.draining && each.in_flight == 0 && each.active_kv < 1;
  });
}

}  // namespace baton::proxy
