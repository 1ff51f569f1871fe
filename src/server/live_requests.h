// The requests being answered, by the ids a client may name in /abort_requests. Any thread.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace baton::server {

class LiveRequests {
 public:
  // Registers while it lives.
  class Entry {
   public:
    Entry(LiveRequests& live, std::vector<std::string> names, std::vector<std::string> engine_ids)
        : live_(live), names_(std::move(names)) {
      std::lock_guard lock(live_.mutex_);
      for (const auto& name : names_) live_.engine_ids_[name] = engine_ids;
    }
    ~Entry() {
      std::lock_guard lock(live_.mutex_);
      for (const auto& name : names_) live_.engine_ids_.erase(name);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    LiveRequests& live_;
    std::vector<std::string> names_;
  };

  // The engine's ids of all choices of `name`; empty when there is no such request.
  std::vector<std::string> find(const std::string& name) const {
    std::lock_guard lock(mutex_);
    const auto it = engine_ids_.find(name);
    return it == engine_ids_.end() ? std::vector<std::string>{} : it->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> engine_ids_;
};

}  // namespace baton::server
