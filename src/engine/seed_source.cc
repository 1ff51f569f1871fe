#include "engine/seed_source.h"

#include <exception>
#include <random>

#include "base/clock.h"
#include "engine/sampling/philox.h"

namespace baton::engine {
namespace {

uint64_t entropy() {
  // Where the system gives no entropy, time is what there is: seeds then differ between starts, which is all they must.
  try {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  } catch (const std::exception&) {
    return static_cast<uint64_t>(SteadyClock().now().time_since_epoch().count());
  }
}

}  // namespace

SeedSource::SeedSource(uint64_t configured) : key_(configured != 0 ? configured : entropy()) {}

uint64_t SeedSource::next() {
  const auto count = count_++;
  const auto words = philox4x32_10({static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), 0, 0x5eed},
                                   {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
  return (uint64_t{words[0]} << 32) | words[1];
}

}  // namespace baton::engine
