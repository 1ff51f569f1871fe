#include "proxy/instances.h"

#include <gtest/gtest.h>

namespace baton::proxy {
namespace {

using namespace std::chrono_literals;

TEST(Instances, ScoresHealthBreakerAndDrain) {
  Instances instances;
  TimePoint now{1000s};
  const auto a = *instances.add(Role::kDecode, "::1", 1), b = *instances.add(Role::kDecode, "h", 1);
  EXPECT_FALSE(instances.add(Role::kDecode, "h", 1));
  for (auto id : {a, b}) instances.note_probe(id, Outcome::kOk, now);
  EXPECT_EQ(instances.pick(Role::kDecode, now, {}), a);
  instances.begin_decode(a, 100);
  EXPECT_EQ(instances.pick(Role::kDecode, now, {}), b);
  instances.begin_decode(b, 50);
  EXPECT_EQ(instances.pick(Role::kDecode, now, {}), b);
  // A slow probe: only when nothing else is up. A refused one: not at all, until a probe succeeds.
  instances.note_probe(b, Outcome::kSlow, now);
  EXPECT_EQ(instances.pick(Role::kDecode, now, {}), a);
  instances.note_probe(a, Outcome::kUnreachable, now);
  EXPECT_EQ(instances.pick(Role::kDecode, now, {}), b);
  instances.note_probe(a, Outcome::kOk, now);
  // Three failures open the breaker for a second, then one request at a time tries, while another is up.
  for (int i = 0; i < 3; ++i) instances.note(a, Outcome::kFailed, now);
  EXPECT_EQ(instances.pick(Role::kDecode, now, {}), b);
  instances.note_probe(b, Outcome::kOk, now);
  EXPECT_EQ(instances.pick(Role::kDecode, now + 2s, {}), b);  // a's earlier request still runs
  instances.end_decode(a, 100);
  EXPECT_EQ(instances.pick(Role::kDecode, now + 2s, {}), a);
  instances.note(a, Outcome::kFailed, now + 2s);
  EXPECT_EQ(instances.pick(Role::kDecode, now + 3500ms, {}), b);  // doubled
  EXPECT_EQ(instances.pick(Role::kDecode, now + 5s, {}), a);
  // Alone, it serves whatever its breaker says, as long as it answers probes.
  instances.note_probe(b, Outcome::kUnreachable, now);
  EXPECT_EQ(instances.pick(Role::kDecode, now + 3500ms, {}), a);
  instances.note(a, Outcome::kOk, now + 5s);
  // Removal waits for the instance's own requests, and for nobody else's.
  instances.begin_decode(a, 10);
  EXPECT_TRUE(instances.remove(Role::kDecode, "h", 1));
  EXPECT_TRUE(instances.find(b));
  instances.end_decode(b, 50);
  EXPECT_FALSE(instances.find(b));
  EXPECT_TRUE(instances.find(a));
  EXPECT_FALSE(instances.remove(Role::kDecode, "h", 1));
  // One that joins must answer first.
  const auto c = *instances.add(Role::kPrefill, "c", 1, now + 10s);
  EXPECT_FALSE(instances.pick(Role::kPrefill, now, {}));
  EXPECT_EQ(instances.count(Role::kPrefill), 0);
  instances.note_probe(c, Outcome::kOk, now);
  EXPECT_EQ(instances.pick(Role::kPrefill, now, {}), c);
  const auto d = *instances.add(Role::kPrefill, "d", 1, now + 10s);
  instances.expire(now + 10s);
  EXPECT_FALSE(instances.find(d));
  EXPECT_TRUE(instances.find(c));
}

TEST(Instances, TwoGoodProbesCloseTheBreaker) {
  Instances instances;
  TimePoint now{1000s};
  const auto p = *instances.add(Role::kPrefill, "p", 1);
  instances.note_probe(p, Outcome::kOk, now);
  for (int round = 0; round < 12; ++round) {  // however often it has opened
    for (int i = 0; i < 3; ++i) instances.note(p, Outcome::kFailed, now);
    // A decode engine can do without a prefill one: none is chosen while its breaker is open.
    EXPECT_FALSE(instances.pick(Role::kPrefill, now, {}));
    instances.note_probe(p, Outcome::kOk, now);
    EXPECT_FALSE(instances.pick(Role::kPrefill, now, {}));
    instances.note_probe(p, Outcome::kSlow, now);
    instances.note_probe(p, Outcome::kOk, now);
    EXPECT_FALSE(instances.pick(Role::kPrefill, now, {}));
    instances.note_probe(p, Outcome::kOk, now);
    instances.begin_prefill(p, 10);
    EXPECT_TRUE(instances.pick(Role::kPrefill, now, {}));
    instances.end_prefill(p, 10);
    instances.release_kv(p, 10);
  }
}

TEST(Instances, AnUnreachableDecodeEngineIsTheLastChoiceUntilAProbeSaysMore) {
  Instances instances;
  const TimePoint now{1000s};
  const auto a = *instances.add(Role::kDecode, "a", 1), b = *instances.add(Role::kDecode, "b", 1);
  for (auto id : {a, b}) instances.note_probe(id, Outcome::kOk, now);
  instances.note(a, Outcome::kUnreachable, now);
  EXPECT_EQ(instances.pick(Role::kDecode, now, {}), b);
  EXPECT_EQ(instances.pick(Role::kDecode, now, std::vector{b}), a);
  instances.note_probe(a, Outcome::kUnreachable, now);
  EXPECT_FALSE(instances.pick(Role::kDecode, now, std::vector{b}));
  instances.note(a, Outcome::kUnreachable, now);  // a late answer does not bring it back
  EXPECT_FALSE(instances.pick(Role::kDecode, now, std::vector{b}));
}

TEST(Instances, SeveralProbesInARowWithoutAnAnswerAreDown) {
  Instances instances;
  const TimePoint now{1000s};
  const auto d = *instances.add(Role::kDecode, "d", 1);
  instances.note_probe(d, Outcome::kOk, now, true);
  EXPECT_TRUE(instances.find(d)->baton);
  for (const auto health : {Health::kSuspect, Health::kSuspect, Health::kDown, Health::kDown}) {
    instances.note_probe(d, Outcome::kSlow, now);
    EXPECT_EQ(instances.find(d)->health, health);
    EXPECT_FALSE(instances.any_up(Role::kDecode));
  }
  instances.note_probe(d, Outcome::kOk, now);
  EXPECT_TRUE(instances.any_up(Role::kDecode));
  EXPECT_FALSE(instances.find(d)->baton) << "another engine at the same address";
  instances.note_probe(d, Outcome::kUnreachable, now);
  instances.note_probe(d, Outcome::kSlow, now);
  EXPECT_EQ(instances.find(d)->health, Health::kDown) << "it starts, and does not answer yet";
}

TEST(Instances, TwoPrefillEnginesWithDifferentQueuesAreToldApart) {
  Instances instances;
  const TimePoint now{1000s};
  const auto a = *instances.add(Role::kPrefill, "a", 1), b = *instances.add(Role::kPrefill, "b", 1);
  instances.begin_prefill(a, 4000);
  instances.release_kv(a, 4000);  // KV gone, the prompt still being computed
  EXPECT_EQ(instances.pick(Role::kPrefill, now, {}), b);
  instances.end_prefill(a, 4000);
  EXPECT_EQ(instances.pick(Role::kPrefill, now, {}), a);
}

}  // namespace
}  // namespace baton::proxy
