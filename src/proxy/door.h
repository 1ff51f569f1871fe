// How many generations each client has in the proxy. Owned by the proxy's thread.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "base/client_share.h"

namespace baton::proxy {

class Door {
 public:
  enum class Answer : uint8_t { kOpen, kFull, kShareTaken };
  Answer ask(const std::string& client, int places) const {
    const int64_t room = int64_t{places} - in_flight_;
    if (room <= 0) return Answer::kFull;
    const auto mine = of_.find(client);
    return mine != of_.end() && mine->second >= client_share(room) ? Answer::kShareTaken : Answer::kOpen;
  }
  void enter(const std::string& client) {
    ++in_flight_;
    ++of_[client];
  }
  void leave(const std::string& client) {
    --in_flight_;
    const auto mine = of_.find(client);
    if (--mine->second == 0) of_.erase(mine);
  }
  int in_flight() const { return in_flight_; }

 private:
  int in_flight_ = 0;
  std::map<std::string, int64_t> of_;
};

}  // namespace baton::proxy
