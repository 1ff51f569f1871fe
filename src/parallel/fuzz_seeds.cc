// Writes the seed corpus of meeting_fuzz: one of each message of a meeting.
//
//   meeting_fuzz_seeds FOLDER
#include "base/fuzz_seed_files.h"
#include "parallel/net/meeting_frames.h"

int main(int argc, char** argv) {
  using namespace baton;
  using namespace baton::parallel;
  const Hello hello{.group = "stages", .fingerprint = "f00d", .rank = 1, .size = 4, .host = "10.0.0.2", .port = 36001};
  const Reason reason{.code = Code::kUnavailable, .try_again = true, .message = "rank 1 is here already"};
  const MeetingTable table{.cookie = "cookie", .places = {{"", 36000}, {"10.0.0.2", 36001}}};
  const std::vector<FuzzSeed> seeds = {
      chosen_seed(0, "hello", hello.encode()),
      chosen_seed(1, "reason", reason.encode()),
      chosen_seed(2, "table", table.encode()),
      chosen_seed(3, "lane", LaneHello{.rank = 3, .lane = LaneKind::kMessages}.encode()),
  };
  return write_fuzz_seeds(argc, argv, seeds);
}
