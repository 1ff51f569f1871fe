#include "engine/cache_shape.h"

#include <algorithm>
#include <optional>
#include <string>

namespace baton::engine {
namespace {

using kernels::PagedKind;
using tensor::DType;

std::optional<DType> parse_cache_dtype(std::string_view name) {
  const auto dtype = tensor::parse_dtype(name);
  constexpr DType kStored[] = {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3, DType::kI8};
  return dtype && std::ranges::find(kStored, *dtype) != std::end(kStored) ? dtype : std::nullopt;
}

Result<void> resolve_dtype(std::string& name, DType automatic, std::string_view flag) {
  const auto dtype = name == "auto" ? automatic : parse_cache_dtype(name);
  if (!dtype) {
    return fail(Code::kInvalidArgument, "{} {}: use auto, bfloat16, float16, float32, fp8 or int8", flag, name);
  }
  name = std::string(tensor::dtype_name(*dtype));
  return {};
}

std::string kind_name(PagedKind kind) {
  switch (kind) {
    case PagedKind::kKeysValues:
      return "keys_values";
    case PagedKind::kLatent:
      return "latent";
    case PagedKind::kIndexKeys:
      return "index_keys";
  }
  return "unknown";
}

kv::CacheEntry layout_entry(const kernels::PagedEntry& entry) {
  return {.kind = kind_name(entry.kind),
          .dtype = std::string(tensor::dtype_name(entry.dtype)),
          .units = entry.heads,
          .parts = entry.kind == PagedKind::kKeysValues ? 2 : 1,
          .token_bytes = kernels::entry_token_bytes(entry)};
}

// A unit per head: a head's state and its part of the convolution window lie together.
kv::PagedGeometry state_geometry(const models::CacheNeeds& needs) {
  if (needs.state_layers == 0) return {};
  const kv::CacheEntry layer{.kind = "state",
                             .dtype = std::string(tensor::dtype_name(DType::kF32)),
                             .units = needs.state_heads,
                             .parts = 1,
                             .token_bytes = needs.state_head_bytes};
  return {1, std::vector(static_cast<size_t>(needs.state_layers), layer)};
}

}  // namespace

Result<void> resolve_cache_dtypes(EngineConfig& config, const models::Model& model) {
  BATON_TRY(resolve_dtype(config.kv_cache_dtype, model.native_cache_dtype(), "--kv-cache-dtype"));
  const auto main = *parse_cache_dtype(config.kv_cache_dtype);
  BATON_TRY(resolve_dtype(config.indexer_cache_dtype, main, "--attention-config.indexer_kv_dtype"));
  return {};
}

CacheShape cache_shape(const EngineConfig& config, const models::Model& model) {
  const auto needs = model.cache_needs();
  CacheShape shape{.entries = needs.paged, .layout = {}};
  std::vector<kv::CacheEntry> entries;
  for (auto& entry : shape.entries) {
    const bool index = entry.kind == PagedKind::kIndexKeys;
    entry.dtype = *parse_cache_dtype(index ? config.indexer_cache_dtype : config.kv_cache_dtype);
    entries.push_back(layout_entry(entry));
  }
  shape.layout.blocks = kv::PagedGeometry(config.block_size, std::move(entries));
  shape.layout.states = state_geometry(needs);
  return shape;
}

}  // namespace baton::engine
