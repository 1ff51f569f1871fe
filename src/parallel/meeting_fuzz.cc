// Whatever bytes a member or a desk sends: a message within its bounds, or an error. Messages survive a second
// encoding.
#include <cstdlib>
#include <span>

#include "parallel/net/meeting_frames.h"

namespace {

using namespace baton::parallel;

template <typename Message>
void fuzz_message(std::span<const std::byte> bytes) {
  const auto message = Message::decode(bytes);
  if (!message) return;
  const auto again = message->encode();
  const auto second = Message::decode(again);
  if (!second || second->encode() != again) std::abort();
}

}  // namespace

// The first byte chooses the message.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 4) {
    case 0:
      fuzz_message<Hello>(body);
      break;
    case 1:
      fuzz_message<Reason>(body);
      break;
    case 2:
      fuzz_message<MeetingTable>(body);
      break;
    default:
      fuzz_message<LaneHello>(body);
      break;
  }
  return 0;
}
