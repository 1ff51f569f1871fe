// What the steps of a tokenizer.json may cost: a file of a few lines could else double a text forty times, or walk it
// ten thousand times. Counted as the steps are read, so that such a file is an error and no text is cut.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer/json_access.h"

namespace baton::text {

// The steps of one chain: their number, and the most bytes that they make of one byte.
class StepBounds {
 public:
  static constexpr int kStepsMax = 64;
  StepBounds(std::string_view chain, uint64_t growth_max) : chain_(chain), growth_max_(growth_max) {}
  // `growth` >= 1: of the step that comes next. kOutOfRange once there are too many or they grow too much.
  Result<void> add(uint64_t growth);

 private:
  std::string_view chain_;
  uint64_t growth_max_;
  uint64_t growth_ = 1;
  int steps_ = 0;
};

// Far above what files of real models have: 12 for Llama 2, 11 for NFKC, 6 for Metaspace; decoders only shorten.
inline constexpr uint64_t kTextGrowthMax = 1024;
inline constexpr uint64_t kTokenGrowthMax = 16;

uint64_t normalizer_growth(const Json& step);
uint64_t pre_tokenizer_growth(const Json& step);
uint64_t decoder_growth(const Json& step);

}  // namespace baton::text
