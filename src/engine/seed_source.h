// Seeds for requests that bring none.
#pragma once

#include <cstdint>

namespace baton::engine {

// With a configured seed (not 0), the same seeds in the same order every time; else from the system's entropy. One
// caller at a time.
class SeedSource {
 public:
  explicit SeedSource(uint64_t configured);
  uint64_t next();

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

}  // namespace baton::engine
