#include "parallel/rendezvous.h"

#include <fcntl.h>

#include "base/log.h"
#include "parallel/memory/memory_mesh.h"
#include "parallel/net/meeting.h"
#include "parallel/net/net_lanes.h"
#include "parallel/shm/agreement.h"

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

// The two paths, over what the members of a host share or over sockets.
Result<void> make_lanes(const RendezvousOptions& options, MeetingResult& met, ProcessMeshParts& parts) {
  // The first words pass the sockets of the exchange path; the lanes that go on with them come later.
  std::vector<Descriptor> exchange_sockets;
  for (const auto& socket : met.exchange) {
    exchange_sockets.push_back(socket.open() ? Descriptor(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)) : Descriptor());
  }
  BATON_TRY_ASSIGN(auto first_words, make_net_lanes(std::move(exchange_sockets)));
  LaneExchange exchange(*parts.state, *first_words);
  BATON_TRY_ASSIGN(auto memory, agree_on_shared_memory(*parts.state, exchange, options.host, options.allow_shm));
  if (memory.group == SharedMemory::Use::kAll) {
    parts.kind = "shared memory";
    parts.exchange = make_shm_lanes(memory.segments, options.rank, kExchangePath, options.mesh.spin);
    parts.messages = make_shm_lanes(memory.segments, options.rank, kMessagePath, options.mesh.spin);
    return {};
  }
  if (memory.ours) {
    parts.kind = "shared memory and tcp";
    BATON_TRY_ASSIGN(parts.exchange,
                     make_mixed_lanes(memory.segments, options.rank, kExchangePath, std::move(met.exchange)));
    BATON_TRY_ASSIGN(parts.messages,
                     make_mixed_lanes(memory.segments, options.rank, kMessagePath, std::move(met.messages)));
    return {};
  }
  parts.kind = "tcp";
  BATON_TRY_ASSIGN(parts.exchange, make_net_lanes(std::move(met.exchange)));
  BATON_TRY_ASSIGN(parts.messages, make_net_lanes(std::move(met.messages)));
  return {};
}

Result<std::unique_ptr<Mesh>> make_mesh(const RendezvousOptions& options, MeetingResult met) {
  ProcessMeshParts parts;
  parts.state = std::make_unique<MeshState>(options.rank, std::move(met.members), options.mesh);
  parts.control = std::move(met.control);
  parts.companion = std::move(met.desk);
  BATON_TRY(make_lanes(options, met, parts));
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
