// What Kimi's pattern asks of a character. Built once, then read by any thread.
#pragma once

#include <cstdint>
#include <memory>

namespace baton::text {

// Bits; a character may have several.
enum KimiClass : uint8_t {
  kKimiHan = 1,      // Script=Han
  kKimiUpper = 2,    // Lu, Lt, Lm, Lo, M and not Han: may stand in the first half of a word
  kKimiLower = 4,    // Ll, Lm, Lo, M and not Han: in the second half
  kKimiNumber = 8,   // N
  kKimiLetter = 16,  // L
  kKimiSpace = 32,   // White_Space, the pattern's \s
};

class KimiClasses {
 public:
  static const KimiClasses& get();
  // `code_point` >= 0; 0 for what has no class (punctuation, symbols, controls, unassigned).
  uint8_t of(int32_t code_point) const {
    return static_cast<uint32_t>(code_point) < kTableSize ? table_[static_cast<uint32_t>(code_point)]
                                                          : look_up(code_point);
  }

 private:
  KimiClasses();
  static uint8_t look_up(int32_t code_point);
  static constexpr uint32_t kTableSize = 0x10000;
  std::unique_ptr<uint8_t[]> table_;
};

}  // namespace baton::text
