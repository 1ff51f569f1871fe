#include "transfer/push_frames.h"

#include <algorithm>

#include "kv/seal_table.h"

namespace baton::transfer {
namespace {

struct Places {
  int64_t begin = 0, end = 0;
};

// Blocks of a rank, by their places in the prompt, that the range completes.
Places places_of(const Holdings& from, int rank, const PushRange& range) {
  if (range.skip_tokens >= range.token_count) return {};
  const int64_t size = from.block_size, n = from.context_size, c = from.rank(rank).context_rank;
  const bool all = range.end_token >= range.token_count;
  // Of all context ranks' blocks together.
  const int64_t begin = std::max(range.begin_token, range.skip_tokens) / size;
  const int64_t end = all ? (range.token_count + size - 1) / size : range.end_token / size;
  const auto first_from = [&](int64_t block) { return block <= c ? 0 : (block - c + n - 1) / n; };
  return {first_from(begin), first_from(end)};
}

// Entries [first, + count) of a span, in blocks [places), cut into frames.
void append_frames(const kv::PagedGeometry& geometry, const wire::PushData& of, Places places,
                   std::vector<wire::PushData>& frames) {
  const int block_size = geometry.block_size();
  const int64_t count = places.end - places.begin;
  const auto bytes_of = [&](uint32_t first, uint32_t entries) {
    return span_bytes(geometry, {first, entries, of.span.first_unit, of.span.unit_count}, block_size);
  };
  for (uint32_t e = of.span.first_entry; e < of.span.first_entry + of.span.entry_count;) {
    const int64_t one = bytes_of(e, 1);
    const int64_t together = std::clamp<int64_t>(kPushFrameBytes / std::max<int64_t>(one, 1), 1, count);
    uint32_t entries = 1;
    while (together == count && e + entries < of.span.first_entry + of.span.entry_count &&
           bytes_of(e, entries + 1) * count <= kPushFrameBytes) {
      ++entries;
    }
    for (int64_t place = places.begin; place < places.end; place += together) {
      auto frame = of;
      frame.span.first_entry = e;
      frame.span.entry_count = entries;
      frame.first_place = static_cast<uint32_t>(place);
      frame.place_count = static_cast<uint32_t>(std::min(together, places.end - place));
      frames.push_back(std::move(frame));
    }
    e += entries;
  }
}

void append_span(const ReshardPlan& plan, int rank, bool state, const wire::UnitSpan& span, kv::EntryRange entries,
                 Places places, std::vector<wire::PushData>& frames) {
  const int64_t begin = std::max<int64_t>(span.first_entry, entries.first);
  const int64_t end = std::min<int64_t>(int64_t{span.first_entry} + span.entry_count, entries.end());
  if (begin >= end) return;
  wire::PushData of{.rank = static_cast<uint32_t>(rank), .state = state, .span = span, .checksums = {}};
  of.span.first_entry = static_cast<uint32_t>(begin);
  of.span.entry_count = static_cast<uint32_t>(end - begin);
  append_frames(plan.from().geometry(rank, state), of, places, frames);
}

}  // namespace

std::vector<wire::PushData> push_frames(const ReshardPlan& plan, int rank, kv::EntryRange entries,
                                        const PushRange& range) {
  std::vector<wire::PushData> frames;
  const Places places = places_of(plan.from(), rank, range);
  if (places.begin >= places.end) return frames;
  for (const auto& span : plan.spans(rank, /*state=*/false)) {
    append_span(plan, rank, /*state=*/false, span.from, entries, places, frames);
  }
  return frames;
}

std::vector<wire::PushData> push_state_frames(const ReshardPlan& plan, int rank) {
  std::vector<wire::PushData> frames;
  const auto all = plan.from().geometry(rank, /*state=*/true).all_entries();
  for (const auto& span : plan.spans(rank, /*state=*/true)) {
    append_span(plan, rank, /*state=*/true, span.from, all, {0, 1}, frames);
  }
  return frames;
}

std::vector<std::span<const std::byte>> load_frame(const Holdings& from, const PushSource& source,
                                                   wire::PushData& data) {
  const auto rank = static_cast<int>(data.rank);
  const auto& geometry = from.geometry(rank, data.state);
  std::vector<std::span<const std::byte>> payload;
  for (uint32_t i = 0; i < data.place_count; ++i) {
    const int64_t place = int64_t{data.first_place} + i;
    const int64_t begin = (place * from.context_size + from.rank(rank).context_rank) * from.block_size;
    const int tokens =
        data.state ? 1 : static_cast<int>(std::min<int64_t>(from.block_size, source.token_count - begin));
    const int32_t index =
        data.state ? source.slot : source.blocks[static_cast<size_t>(place - source.first_place)].value;
    const auto block = source.arena.subspan(static_cast<size_t>(from.offset(rank, index, data.state)),
                                            static_cast<size_t>(geometry.block_bytes()));
    for (uint32_t e = 0; e < data.span.entry_count; ++e) {
      for (uint32_t u = 0; u < data.span.unit_count; ++u) {
        data.checksums.push_back(kv::unit_checksum(geometry, block.data(), static_cast<int>(data.span.first_entry + e),
                                                   static_cast<int>(data.span.first_unit + u), tokens));
      }
    }
    const auto pieces = payload_pieces(geometry, block, tokens, data.span);
    payload.insert(payload.end(), pieces.begin(), pieces.end());
  }
  return payload;
}

}  // namespace baton::transfer
