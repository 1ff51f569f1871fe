#include "parallel/lane_messages.h"

#include <pthread.h>

namespace baton::parallel {
namespace {

constexpr uint32_t kMessageMark = 0x4d424d31;

}  // namespace

LaneMessages::LaneMessages(MeshState& state, Lanes& lanes, Broken broken)
    : state_(state), lanes_(lanes), broken_(std::move(broken)), incoming_(state.members().size()) {
  for (size_t i = 0; i < state.members().size(); ++i) sending_.push_back(std::make_unique<std::mutex>());
  state_.set_room_waker([this] { lanes_.nudge(); });
  reader_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "mesh-messages");
    read_all();
  });
}

LaneMessages::~LaneMessages() { reader_.join(); }

std::optional<LaneMessages::Failure> LaneMessages::send(int process, uint32_t tag, Mesh::Bytes message) {
  std::lock_guard one(*sending_[static_cast<size_t>(process)]);
  const TimePoint deadline = mesh_deadline(state_.options().deadline);
  LaneWriter writer;
  writer.start({.bytes = message.size(),
                .number = tag,
                .mark = kMessageMark,
                .check = lane_check(lanes_, process, tag, message)},
               message);
  std::vector<Lanes::Want> wants(state_.members().size());
  wants[static_cast<size_t>(process)].write = true;
  while (!writer.done()) {
    if (auto status = state_.failure()) return Failure{std::move(*status)};
    const uint32_t ticket = lanes_.ticket(Lanes::Side::kOut);
    auto moved = writer.go_on(lanes_, process);
    if (!moved) return Failure{std::move(moved.error()), true};
    if (*moved) continue;
    if (SteadyClock().now() >= deadline) {
      return Failure{state_.lost(process, overdue(state_.options().deadline, "room for a message"))};
    }
    lanes_.wait(Lanes::Side::kOut, ticket, wants, Lanes::Until::kAny, deadline);
  }
  return {};
}

void LaneMessages::read_all() {
  std::vector<Lanes::Want> wants(state_.members().size());
  while (!state_.failure()) {
    const uint32_t ticket = lanes_.ticket(Lanes::Side::kIn);
    bool moved = false;
    for (int p = 0; p < state_.size(); ++p) {
      if (p == state_.rank()) continue;
      Incoming& in = incoming_[static_cast<size_t>(p)];
      const bool open = !in.over && (in.position > 0 || state_.has_room(p));
      wants[static_cast<size_t>(p)].read = open;
      if (open && read_from(p)) moved = true;
    }
    if (!moved) lanes_.wait(Lanes::Side::kIn, ticket, wants, Lanes::Until::kAny, TimePoint::max());
  }
}

bool LaneMessages::read_from(int process) {
  Incoming& in = incoming_[static_cast<size_t>(process)];
  const bool in_header = in.position < sizeof(LaneHeader);
  const auto room = in_header ? std::as_writable_bytes(std::span(&in.header, 1)).subspan(in.position)
                              : in.bytes.span().subspan(in.position - sizeof(LaneHeader));
  const auto count = lanes_.read_some(process, room);
  if (!count) {
    give_up(process, count.error(), true);
    return false;
  }
  if (*count == 0) return false;
  in.position += *count;
  if (in_header && in.position == sizeof(LaneHeader) && !take_header(process)) return false;
  if (in.position >= sizeof(LaneHeader) && in.position == sizeof(LaneHeader) + in.header.bytes) {
    in.position = 0;
    if (lane_check(lanes_, process, in.header.number, in.bytes.span()) != in.header.check) {
      give_up(process, state_.lost(process, "a message of it was altered on its way"), false);
      return false;
    }
    state_.deliver(process, in.header.number, std::exchange(in.bytes, {}));
  }
  return true;
}

bool LaneMessages::take_header(int process) {
  Incoming& in = incoming_[static_cast<size_t>(process)];
  if (in.header.mark != kMessageMark || in.header.bytes > state_.options().message_bytes_max) {
    give_up(process, state_.lost(process, "what it sent is not a message"), false);
    return false;
  }
  if (in.bytes.resize(in.header.bytes)) return true;
  give_up(process,
          Status(Code::kResourceExhausted,
                 fmt::format("no memory for a message of {} bytes of {}", in.header.bytes, state_.name_of(process))),
          false);
  return false;
}

void LaneMessages::give_up(int process, const Status& status, bool path_broken) {
  incoming_[static_cast<size_t>(process)].over = true;
  broken_(process, status, path_broken);
}

}  // namespace baton::parallel
