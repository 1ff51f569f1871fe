// Ids that can't be mixed up: StrongId<struct BlockTag, int32_t>.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>

namespace baton {

template <typename Tag, typename T>
struct StrongId {
  T value{};
  constexpr StrongId() = default;
  constexpr explicit StrongId(T v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

// A KV block of one engine, an index into its arena.
using BlockId = StrongId<struct BlockTag, int32_t>;
// A token of the vocabulary. Plain, since kernels and tokenizers handle spans of millions of them.
using TokenId = int32_t;

}  // namespace baton

template <typename Tag, typename T>
struct std::hash<baton::StrongId<Tag, T>> {
  size_t operator()(const baton::StrongId<Tag, T>& id) const noexcept { return std::hash<T>{}(id.value); }
};

template <typename Tag, typename T>
struct fmt::formatter<baton::StrongId<Tag, T>> : fmt::formatter<T> {
  template <typename Context>
  auto format(const baton::StrongId<Tag, T>& id, Context& context) const {
    return fmt::formatter<T>::format(id.value, context);
  }
};
