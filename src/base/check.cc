#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace baton {

void check_failed(std::string_view file, int line, std::string_view condition, std::string_view message) {
  fmt::print(stderr, "{}:{}: check failed: {} {}\n", file, line, condition, message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace baton
