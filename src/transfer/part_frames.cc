#include "transfer/part_frames.h"

#include "transfer/reshard_plan.h"

namespace baton::transfer {

Result<PartFrames> PartFrames::of(const Holdings& holdings, const RankSeals& seals, std::span<const std::byte> arena,
                                  const SendBlocks& send, size_t index) {
  PartFrames frames(holdings, send, index);
  const SendPart& part = send.parts[index];
  const auto& wanted = send.ranks[part.of];
  const int rank = static_cast<int>(wanted.rank);
  const auto& geometry = holdings.geometry(rank, wanted.state);
  frames.checksums_.resize(static_cast<size_t>(geometry.units_per_block()));
  const kv::SealReader* reader = seals.reader(rank, wanted.state);
  if (reader == nullptr) return fail(Code::kUnavailable, "no such state");
  const auto seal = reader->read(part.block, frames.checksums_);
  if (!seal || *seal != kv::Seal{part.generation, part.tokens}) {
    return fail(Code::kUnavailable, "a block was reopened");
  }
  frames.block_ = arena.subspan(static_cast<size_t>(holdings.offset(rank, part.block, wanted.state)),
                                static_cast<size_t>(geometry.block_bytes()));
  return frames;
}

std::optional<PartFrames::Frame> PartFrames::next() {
  const SendPart& part = send_->parts[index_];
  const auto& wanted = send_->ranks[part.of];
  if (span_ == wanted.spans.size()) return std::nullopt;
  const auto& span = wanted.spans[span_];
  const auto& geometry = holdings_->geometry(static_cast<int>(wanted.rank), wanted.state);
  const uint32_t count = frame_entries(geometry, span, part.tokens, entry_);
  Frame frame{.data = {.call = send_->call,
                       .offer_id = send_->offer_id,
                       .part = static_cast<uint32_t>(index_),
                       .tokens = static_cast<uint32_t>(part.tokens),
                       .generation = part.generation,
                       .span = {span.first_entry + entry_, count, span.first_unit, span.unit_count},
                       .last = false,
                       .checksums = {}},
              .payload = {}};
  auto& data = frame.data;
  for (uint32_t e = 0; e < count; ++e) {
    const auto first = geometry.first_unit(static_cast<int>(data.span.first_entry + e)) + span.first_unit;
    const auto at = std::span(checksums_).subspan(static_cast<size_t>(first), span.unit_count);
    data.checksums.insert(data.checksums.end(), at.begin(), at.end());
  }
  frame.payload = payload_pieces(geometry, block_, part.tokens, data.span);
  frame.payload_bytes = span_bytes(geometry, data.span, part.tokens);
  entry_ += count;
  if (entry_ == span.entry_count) {
    entry_ = 0;
    ++span_;
  }
  data.last = index_ + 1 == send_->parts.size() && span_ == wanted.spans.size();
  return frame;
}

}  // namespace baton::transfer
