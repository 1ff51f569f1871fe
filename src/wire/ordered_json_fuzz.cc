// Any bytes: parsed as nlohmann's own parser does, to the same value; refused where it refuses, or for depth.
#include <cstdlib>

#include "wire/ordered_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ours = baton::wire::parse_ordered_json(text, 64);
  const Json theirs = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (ours && (theirs.is_discarded() || ours->dump() != theirs.dump())) std::abort();
  if (!ours && !theirs.is_discarded() && ours.error().message().find("deeper") == std::string::npos) std::abort();
  return 0;
}
