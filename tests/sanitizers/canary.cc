// canary race|overflow|leak|undefined: does the named wrong and returns 0, unless a sanitizer sees it.
// canary_test.py expects that one does: a build whose sanitizers see nothing would pass every test.
#include <cstdlib>
#include <limits>
#include <string_view>
#include <thread>

namespace {

int shared = 0;

void race() {
  std::thread other([] { ++shared; });
  ++shared;
  other.join();
}

void overflow(int index) {
  int* const numbers = new int[4]{};
  shared = numbers[index];
  delete[] numbers;
}

void leak() {
  char* volatile lost = new char[100];
  lost = nullptr;
  (void)lost;
}

void undefined(int one) { shared = std::numeric_limits<int>::max() + one; }

}  // namespace

int main(int argc, char** argv) {
  const std::string_view wrong = argc > 1 ? argv[1] : "";
  if (wrong == "race") race();
  if (wrong == "overflow") overflow(3 + argc - 1);
  if (wrong == "leak") leak();
  if (wrong == "undefined") undefined(argc - 1);
  return 0;
}
