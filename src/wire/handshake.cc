#include "wire/handshake.h"

namespace baton::wire {
namespace {

constexpr size_t kTextMax = 512;     // bytes of one name
constexpr size_t kLayersMax = 4096;  // layer names, entries of a layout

template <typename T>
Result<void> same(std::string_view what, const T& ours, const T& theirs) {
  if (ours == theirs) return {};
  return fail(Code::kMismatch, "{}: ours {}, theirs {}", what, ours, theirs);
}

Result<void> same_layers(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  BATON_TRY(same("number of layer names", ours.size(), theirs.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    BATON_TRY(same(fmt::format("name of layer {}", i), ours[i], theirs[i]));
  }
  return {};
}

Result<void> same_entries(std::string_view what, const std::vector<LayoutEntry>& ours,
                          const std::vector<LayoutEntry>& theirs) {
  BATON_TRY(same(fmt::format("number of {} entries", what), ours.size(), theirs.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto of = [&](std::string_view property) { return fmt::format("{} of {} entry {}", property, what, i); };
    BATON_TRY(same(of("kind"), ours[i].kind, theirs[i].kind));
    BATON_TRY(same(of("dtype"), ours[i].dtype, theirs[i].dtype));
    BATON_TRY(same(of("heads"), ours[i].units, theirs[i].units));
    BATON_TRY(same(of("parts"), ours[i].parts, theirs[i].parts));
    BATON_TRY(same(of("bytes per token"), ours[i].token_bytes, theirs[i].token_bytes));
  }
  return {};
}

Result<void> same_layout(const LayoutDesc& ours, const LayoutDesc& theirs) {
  BATON_TRY(same("block size", ours.block_size, theirs.block_size));
  BATON_TRY(same_entries("cache", ours.entries, theirs.entries));
  return same_entries("state", ours.states, theirs.states);
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

void put_entries(const std::vector<LayoutEntry>& entries, ByteWriter& writer) {
  writer.put(static_cast<uint32_t>(entries.size()));
  for (const auto& entry : entries) {
    writer.put_string(entry.kind);
    writer.put_string(entry.dtype);
    writer.put(entry.units);
    writer.put(entry.parts);
    writer.put(entry.token_bytes);
  }
}

Result<std::vector<LayoutEntry>> get_entries(ByteReader& reader, std::string_view what) {
  const auto count = reader.get<uint32_t>();
  if (count > kLayersMax) return fail(Code::kOutOfRange, "{} {}, at most {} are allowed", count, what, kLayersMax);
  std::vector<LayoutEntry> entries;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    auto& entry = entries.emplace_back();
    BATON_TRY_ASSIGN(entry.kind, bounded_text(reader, "kind of an entry"));
    BATON_TRY_ASSIGN(entry.dtype, bounded_text(reader, "dtype of an entry"));
    entry.units = reader.get<int32_t>();
    entry.parts = reader.get<int32_t>();
    entry.token_bytes = reader.get<int64_t>();
  }
  return entries;
}

}  // namespace

Result<void> compare_identity(const EngineIdentity& ours, const EngineIdentity& theirs, CompareOptions options) {
  BATON_TRY(same("hand-off protocol version", ours.protocol_version, theirs.protocol_version));
  BATON_TRY(same("model fingerprint", ours.model_fingerprint, theirs.model_fingerprint));
  if (!ours.tokenizer_hash.empty() && !theirs.tokenizer_hash.empty()) {
    BATON_TRY(same("tokenizer", ours.tokenizer_hash, theirs.tokenizer_hash));
  }
  BATON_TRY(same_layout(ours.layout, theirs.layout));
  BATON_TRY(same_layers(ours.layer_names, theirs.layer_names));
  if (options.allow_other_profile) return {};
  return same_profile(ours.profile, theirs.profile);
}

void encode_identity(const EngineIdentity& identity, ByteWriter& writer) {
  writer.put(identity.protocol_version);
  writer.put_string(identity.software_version);
  writer.put_string(identity.engine_id);
  writer.put(identity.instance_nonce);
  writer.put_string(identity.model_fingerprint);
  writer.put_string(identity.tokenizer_hash);
  writer.put(identity.layout.block_size);
  put_entries(identity.layout.entries, writer);
  put_entries(identity.layout.states, writer);
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
  BATON_TRY_ASSIGN(identity.model_fingerprint, bounded_text(reader, "model fingerprint"));
  BATON_TRY_ASSIGN(identity.tokenizer_hash, bounded_text(reader, "tokenizer hash"));
  identity.layout.block_size = reader.get<int32_t>();
  BATON_TRY_ASSIGN(identity.layout.entries, get_entries(reader, "cache entries"));
  BATON_TRY_ASSIGN(identity.layout.states, get_entries(reader, "state entries"));
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
