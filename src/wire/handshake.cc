#include "wire/handshake.h"

namespace baton::wire {
namespace {

constexpr size_t kTextMax = 512;     // bytes of one name
constexpr size_t kLayersMax = 8192;  // layer names

template <typename T>
Result<void> same(std::string_view what, const T& ours, const T& theirs) {
  if (ours == theirs) return {};
  return fail(Code::kMismatch, "{}: ours {}, theirs {}", what, ours, theirs);
}

std::string model_text(const EngineIdentity& identity) {
  std::string text = identity.model_fingerprint;
  if (!identity.model_config.empty())
    text += fmt::format(" ({}; weights {})", identity.model_config, identity.quantisation);
  return text;
}

Result<void> same_if_said(std::string_view what, const std::string& ours, const std::string& theirs) {
  return ours.empty() || theirs.empty() ? Result<void>{} : same(what, ours, theirs);
}

Result<void> same_layers(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  BATON_TRY(same("number of layer names", ours.size(), theirs.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    BATON_TRY(same(fmt::format("name of layer {}", i), ours[i], theirs[i]));
  }
  return {};
}

Result<void> same_profile(const NumericProfile& ours, const NumericProfile& theirs) {
  BATON_TRY(same("instruction set", ours.isa, theirs.isa));
  BATON_TRY(same("kernel revision", ours.kernel_revision, theirs.kernel_revision));
  return same("oneDNN version", ours.onednn_version, theirs.onednn_version);
}

Result<std::string> bounded_text(ByteReader& reader, std::string_view what) {
  std::string text = reader.get_string();
  if (text.size() > kTextMax) {
    return fail(Code::kOutOfRange, "{} has {} bytes, at most {} are allowed", what, text.size(), kTextMax);
  }
  return text;
}

}  // namespace

Result<void> compare_identity(const EngineIdentity& ours, const EngineIdentity& theirs, CompareOptions options) {
  BATON_TRY(same("hand-off protocol version", ours.protocol_version, theirs.protocol_version));
  if (!options.allow_other_version) {
    BATON_TRY(same("software version (baton_allow_other_version lets it differ)", ours.software_version,
                   theirs.software_version));
  }
  if (ours.model_fingerprint != theirs.model_fingerprint) {
    return same("model fingerprint", model_text(ours), model_text(theirs));
  }
  BATON_TRY(same_if_said("tokenizer", ours.tokenizer_hash, theirs.tokenizer_hash));
  BATON_TRY(compare_layout(ours.layout, theirs.layout));
  if (ours.layout.grid.processes == 1 && theirs.layout.grid.processes == 1) {
    BATON_TRY(same_layers(ours.layer_names, theirs.layer_names));
  }
  if (options.allow_other_profile) return {};
  return same_profile(ours.profile, theirs.profile);
}

void encode_identity(const EngineIdentity& identity, ByteWriter& writer) {
  writer.put(identity.protocol_version);
  writer.put_string(identity.software_version);
  writer.put_string(identity.engine_id);
  writer.put(identity.instance_nonce);
  writer.put_string(identity.model_config);
  writer.put_string(identity.quantisation);
  writer.put_string(identity.model_fingerprint);
  writer.put_string(identity.tokenizer_hash);
  encode_layout(identity.layout, writer);
  writer.put(static_cast<uint32_t>(identity.layer_names.size()));
  for (const auto& name : identity.layer_names) writer.put_string(name);
  writer.put_string(identity.profile.isa);
  writer.put(identity.profile.kernel_revision);
  writer.put_string(identity.profile.onednn_version);
}

Result<EngineIdentity> decode_identity(ByteReader& reader) {
  EngineIdentity identity;
  identity.protocol_version = reader.get<uint16_t>();
  BATON_TRY_ASSIGN(identity.software_version, bounded_text(reader, "software version"));
  BATON_TRY_ASSIGN(identity.engine_id, bounded_text(reader, "engine id"));
  identity.instance_nonce = reader.get<uint64_t>();
  BATON_TRY_ASSIGN(identity.model_config, bounded_text(reader, "model configuration"));
  BATON_TRY_ASSIGN(identity.quantisation, bounded_text(reader, "quantisation"));
  BATON_TRY_ASSIGN(identity.model_fingerprint, bounded_text(reader, "model fingerprint"));
  BATON_TRY_ASSIGN(identity.tokenizer_hash, bounded_text(reader, "tokenizer hash"));
  BATON_TRY_ASSIGN(identity.layout, decode_layout(reader));
  const auto layers = reader.get<uint32_t>();
  if (layers > kLayersMax) return fail(Code::kOutOfRange, "{} layer names, at most {} are allowed", layers, kLayersMax);
  for (uint32_t i = 0; i < layers && reader.ok(); ++i) {
    BATON_TRY_ASSIGN(auto name, bounded_text(reader, "layer name"));
    identity.layer_names.push_back(std::move(name));
  }
  BATON_TRY_ASSIGN(identity.profile.isa, bounded_text(reader, "instruction set"));
  identity.profile.kernel_revision = reader.get<uint32_t>();
  BATON_TRY_ASSIGN(identity.profile.onednn_version, bounded_text(reader, "oneDNN version"));
  return identity;
}

}  // namespace baton::wire
