// The largest values a configuration may name: far above any model, far below what would overflow a size.
#pragma once

#include <cstdint>

namespace baton::models {

inline constexpr int64_t kLayersMax = 4096;
inline constexpr int64_t kPositionsMax = int64_t{1} << 24;
inline constexpr int64_t kFeaturesMax = int64_t{1} << 20;
inline constexpr int64_t kHeadsMax = 4096;
inline constexpr int64_t kHeadDimMax = 4096;
inline constexpr int64_t kVocabMax = int64_t{1} << 24;

}  // namespace baton::models
