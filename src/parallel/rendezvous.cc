#include "parallel/rendezvous.h"

#include <algorithm>

#include "base/log.h"
#include "parallel/lane_exchange.h"
#include "parallel/memory/memory_mesh.h"
#include "parallel/net/meeting.h"
#include "parallel/net/net_lanes.h"
#include "parallel/shm/shm_lanes.h"

namespace baton::parallel {
namespace {

constexpr int kSizeMax = 1024;

Result<void> check_options(const RendezvousOptions& options) {
  if (options.size < 1 || options.size > kSizeMax) {
    return fail(Code::kInvalidArgument, "a group of {} processes; it must be 1 to {}", options.size, kSizeMax);
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return fail(Code::kInvalidArgument, "rank {} in a group of {} processes", options.rank, options.size);
  }
  if (options.size == 1) return {};
  if (options.address.empty()) return fail(Code::kInvalidArgument, "no address to meet at");
  if (options.port < 1 || options.port > 65535) {
    return fail(Code::kInvalidArgument, "port {} to meet at is not from 1 to 65535", options.port);
  }
  if (options.group.size() + options.fingerprint.size() > 32 * 1024) {
    return fail(Code::kInvalidArgument, "name and fingerprint of a group are over 32 KiB");
  }
  return {};
}

// One exchange of a short word with all.
Result<std::vector<MessageBytes>> tell_all(LaneExchange& exchange, const ByteWriter& word, const MeshState& state) {
  const std::vector<Mesh::Bytes> to_each(state.members().size(), word.view());
  std::vector<MessageBytes> from_each;
  auto failure =
      exchange.run(to_each, from_each, std::min<Duration>(state.options().deadline, std::chrono::minutes(1)));
  if (!failure) return from_each;
  if (!failure->path_broken) return fail(std::move(failure->status));
  return fail(state.lost(failure->process, failure->status.message()));
}

// Where all segments are, if all processes are of this host and willing.
Result<std::optional<std::vector<SegmentPlace>>> learn_places(LaneExchange& exchange, const Result<Segment>& own,
                                                              const MeshState& state) {
  ByteWriter word;
  word.put(static_cast<uint8_t>(own.has_value()));
  (own ? own->place() : SegmentPlace{}).put(word);
  BATON_TRY_ASSIGN(const auto words, tell_all(exchange, word, state));
  std::vector<SegmentPlace> places;
  bool all = true;
  for (const auto& each : words) {
    ByteReader reader(each.span());
    const bool willing = reader.get<uint8_t>() != 0;
    places.push_back(SegmentPlace::get(reader));
    BATON_TRY(reader.finish("a member's shared memory"));
    all = all && willing && !places.back().boot_id.empty() && places.back().boot_id == places.front().boot_id;
  }
  if (!all) return std::optional<std::vector<SegmentPlace>>();
  return places;
}

Result<Segments> map_all(Result<Segment>& own, const std::vector<SegmentPlace>& places, int rank) {
  const int size = static_cast<int>(places.size());
  // shared_ptr: both paths of the mesh lie in these segments.
  auto segments = std::make_shared<std::vector<Segment>>();
  for (int p = 0; p < size; ++p) {
    if (p == rank) {
      segments->push_back(std::move(*own));
      continue;
    }
    BATON_TRY_ASSIGN(Segment mapped, Segment::map(size, places[static_cast<size_t>(p)]));
    segments->push_back(std::move(mapped));
  }
  return segments;
}

// Shared memory for all or for none: null when it is to be sockets. All members call it.
Result<Segments> agree_on_shared_memory(const MeshState& state, LaneExchange& exchange, bool allowed) {
  Result<Segment> own = fail(Code::kCancelled, "not wanted");
  if (allowed) own = Segment::create(state.size(), ring_bytes_for(state.size(), state.options().ring_bytes));
  BATON_TRY_ASSIGN(const auto places, learn_places(exchange, own, state));
  if (!places) return Segments();
  auto segments = map_all(own, *places, state.rank());
  ByteWriter word;
  word.put_string(segments ? "" : segments.error().message());
  BATON_TRY_ASSIGN(const auto words, tell_all(exchange, word, state));
  for (int p = 0; p < state.size(); ++p) {
    ByteReader reader(words[static_cast<size_t>(p)].span());
    if (const std::string trouble = reader.get_string(); !trouble.empty()) {
      log_warning("mesh: no shared memory, sockets instead: process={} reason={}", p, log_quoted(trouble));
      return Segments();
    }
  }
  (**segments)[static_cast<size_t>(state.rank())].close_descriptor();
  return segments;
}

Result<std::unique_ptr<Mesh>> make_mesh(const RendezvousOptions& options, MeetingResult met) {
  ProcessMeshParts parts;
  parts.state = std::make_unique<MeshState>(options.rank, std::move(met.members), options.mesh);
  parts.control = std::move(met.control);
  parts.companion = std::move(met.desk);
  BATON_TRY_ASSIGN(parts.exchange, make_net_lanes(std::move(met.exchange)));
  BATON_TRY_ASSIGN(parts.messages, make_net_lanes(std::move(met.messages)));
  parts.kind = "tcp";
  LaneExchange exchange(*parts.state, *parts.exchange);
  BATON_TRY_ASSIGN(const Segments segments, agree_on_shared_memory(*parts.state, exchange, options.allow_shm));
  if (segments) {
    parts.exchange = make_shm_lanes(segments, options.rank, kExchangePath, options.mesh.spin);
    parts.messages = make_shm_lanes(segments, options.rank, kMessagePath, options.mesh.spin);
    parts.kind = "shared memory";
  }
  return make_process_mesh(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<Mesh>> meet(const RendezvousOptions& options) {
  BATON_TRY(check_options(options));
  if (options.size == 1) return std::unique_ptr<Mesh>(std::move(make_memory_meshes(1, options.mesh).front()));
  auto met = hold_meeting(options);
  if (!met) return fail(met.error().with_context(fmt::format("meeting of group '{}'", options.group)));
  auto mesh = make_mesh(options, std::move(*met));
  if (!mesh) return fail(mesh.error().with_context(fmt::format("meeting of group '{}'", options.group)));
  log_info("mesh group={} rank={} size={} over={}", options.group, options.rank, options.size, (*mesh)->kind());
  return mesh;
}

}  // namespace baton::parallel
