// What the processes of one engine say to each other over their mesh. The leading process is member 0; it schedules and
// samples. Stages follow the members: member m holds the stages behind those of m - 1.
#pragma once

#include <cstdint>

namespace baton::engine {

// Tags of a mesh.
enum class MemberTag : uint32_t {
  kControl = 1,      // leader to member: a MemberCommand, then its body
  kActivations = 2,  // member to the next: what a step's last stage there has left, fp32
  kLogits = 3,       // last member to leader: [logit rows, vocab] fp32
  kReply = 4,        // member to leader: answers of the start, and the end
  kReleased = 5,     // member to leader: ids of offers that it may free
  kSettings = 6,     // all to all, once: what must be equal, and what each has room for
  kReady = 7,        // all to all, once: the cache is there
};
constexpr uint32_t tag(MemberTag t) { return static_cast<uint32_t>(t); }

enum class MemberCommand : uint8_t {
  kStep = 1,    // a step (step_codec.h)
  kOffer = 2,   // an offer: keep what it names for another engine
  kRevoke = 3,  // give it up
  kPush = 5,    // before a step: what it computes of a prompt that is pushed
  kEnd = 4,     // orderly: answer and go
};

}  // namespace baton::engine
