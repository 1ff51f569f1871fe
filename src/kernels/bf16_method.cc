// Which of the two ways of AVX-512 to multiply bf16 is faster on this machine (matmul_bf16_avx512.cc).
#include <algorithm>
#include <chrono>

#include "kernels/matmul_peak.h"
#include "kernels/matmul_scaled_tiles.h"

namespace baton::kernels {
namespace {

double seconds_of(double (*burn)(int64_t)) {
  double best = 1;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    [[maybe_unused]] volatile double operations = burn(1000);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

// Two fma do what one vdpbf16ps does; beside them stands what makes fp32 of the weights.
bool bf16_fma_pays() {
  static const bool pays = 2.4 * seconds_of(burn_fma) < seconds_of(burn_bf16);
  return pays;
}

}  // namespace baton::kernels
