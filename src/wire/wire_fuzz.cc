// Whatever bytes arrive: a message within its bounds, or an error. Messages survive a second encoding.
#include <cstdlib>

#include "wire/handoff_messages.h"
#include "wire/kv_transfer_params.h"

namespace {

void fuzz_frame(std::span<const std::byte> bytes) {
  using namespace baton::wire;
  if (bytes.size() < kFrameHeaderBytes) return;
  const auto header = decode_frame_header(bytes.first<kFrameHeaderBytes>());
  const uint16_t type = header ? header->type : std::to_integer<uint16_t>(bytes[0]) % 12;
  const auto message = decode_body(type, bytes.subspan(kFrameHeaderBytes));
  if (!message) return;
  const auto again = encode_frame(*message);
  const auto second = decode_body(type, std::span(again).subspan(kFrameHeaderBytes));
  if (!second || encode_frame(*second) != again) std::abort();
}

void fuzz_params(std::span<const std::byte> bytes) {
  using baton::wire::KvTransferParams;
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const auto json = nlohmann::json::parse(text, text + bytes.size(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return;
  const auto params = KvTransferParams::from_json(json);
  if (params && !KvTransferParams::from_json(params->to_json())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz_frame(bytes);
  fuzz_params(bytes);
  return 0;
}
