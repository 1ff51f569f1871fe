#include "weights/printable.h"

#include <fmt/format.h>

namespace baton::weights {

std::string printable(std::string_view text, size_t bytes_max) {
  std::string out;
  for (const char character : text.substr(0, bytes_max)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7f) {
      out.push_back(character);
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > bytes_max) out += "...";
  return out;
}

}  // namespace baton::weights
