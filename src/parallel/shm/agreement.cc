#include "parallel/shm/agreement.h"

#include <algorithm>

#include "base/log.h"

namespace baton::parallel {
namespace {

// One exchange of a short word with all.
Result<std::vector<MessageBytes>> tell_all(LaneExchange& exchange, const ByteWriter& word, const MeshState& state) {
  const std::vector<Mesh::Bytes> to_each(state.members().size(), word.view());
  std::vector<MessageBytes> from_each;
  const Duration timeout = std::min<Duration>(state.options().deadline, std::chrono::minutes(1));
  auto failure = exchange.run(to_each, from_each, timeout);
  if (!failure) return from_each;
  if (!failure->path_broken) return fail(std::move(failure->status));
  return fail(state.lost(failure->process, failure->status.message()));
}

// Where each one's segment is; no host for those who want none.
Result<std::vector<SegmentPlace>> learn_places(LaneExchange& exchange, SegmentPlace own, const MeshState& state) {
  ByteWriter word;
  own.put(word);
  BATON_TRY_ASSIGN(const auto words, tell_all(exchange, word, state));
  std::vector<SegmentPlace> places;
  for (const auto& each : words) {
    ByteReader reader(each.span());
    places.push_back(SegmentPlace::get(reader));
    BATON_TRY(reader.finish("a member's shared memory"));
  }
  return places;
}

// Maps what can be mapped; ours stands at its place.
std::vector<Segment> map_near(Segment own, const std::vector<SegmentPlace>& places, const MeshState& state) {
  std::vector<Segment> segments(places.size());
  const auto rank = static_cast<size_t>(state.rank());
  for (size_t p = 0; p < places.size(); ++p) {
    if (p == rank || places[p].boot_id.empty() || places[p].boot_id != places[rank].boot_id) continue;
    if (auto mapped = Segment::map(state.size(), places[p])) {
      segments[p] = std::move(*mapped);
    } else {
      log_warning("mesh: no shared memory with {}, sockets instead: {}", state.name_of(static_cast<int>(p)),
                  log_quoted(mapped.error().message()));
    }
  }
  segments[rank] = std::move(own);
  return segments;
}

// [i * size + j]: i has mapped j's.
Result<std::vector<bool>> learn_mapped(LaneExchange& exchange, const std::vector<Segment>& segments,
                                       const MeshState& state) {
  ByteWriter word;
  for (const auto& segment : segments) word.put(static_cast<uint8_t>(segment.mapped()));
  BATON_TRY_ASSIGN(const auto words, tell_all(exchange, word, state));
  std::vector<bool> mapped;
  for (const auto& each : words) {
    if (each.size() != segments.size()) return fail(Code::kDataLoss, "a member's list of shared memory is cut");
    for (const auto byte : each.span()) mapped.push_back(byte != std::byte{0});
  }
  return mapped;
}

}  // namespace

Result<SharedMemory> agree_on_shared_memory(MeshState& state, LaneExchange& exchange, const std::string& host,
                                            bool allowed) {
  Segment own;
  SegmentPlace own_place;
  if (allowed) {
    if (auto made = Segment::create(state.size(), ring_bytes_for(state.size(), state.options().ring_bytes))) {
      own = std::move(*made);
      own_place = own.place();
      if (!host.empty()) own_place.boot_id = host;
    } else {
      log_warning("mesh: no shared memory, sockets instead: {}", log_quoted(made.error().message()));
    }
  }
  BATON_TRY_ASSIGN(const auto places, learn_places(exchange, own_place, state));
  auto segments = map_near(std::move(own), places, state);
  BATON_TRY_ASSIGN(const auto mapped, learn_mapped(exchange, segments, state));

  SharedMemory agreed;
  const size_t size = segments.size(), rank = static_cast<size_t>(state.rank());
  size_t pairs = 0;
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool shared = mapped[i * size + j] && mapped[j * size + i];
      if (shared) ++pairs;
      if (shared && (i == rank || j == rank)) agreed.ours = true;
      if (!shared && i == rank) segments[j] = Segment();
      if (!shared && j == rank) segments[i] = Segment();
    }
  }
  if (pairs > 0) agreed.group = pairs == size * (size - 1) / 2 ? SharedMemory::Use::kAll : SharedMemory::Use::kSome;
  if (!agreed.ours) return agreed;
  segments[rank].close_descriptor();
  // shared_ptr: both paths of the mesh lie in these segments.
  agreed.segments = std::make_shared<std::vector<Segment>>(std::move(segments));
  return agreed;
}

}  // namespace baton::parallel
