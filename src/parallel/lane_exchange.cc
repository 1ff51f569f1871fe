#include "parallel/lane_exchange.h"

#include <cstring>

namespace baton::parallel {
namespace {

constexpr uint32_t kExchangeMark = 0x58424d31;

}  // namespace

LaneExchange::LaneExchange(MeshState& state, Lanes& lanes)
    : state_(state),
      lanes_(lanes),
      writers_(state.members().size()),
      incoming_(state.members().size()),
      wants_(state.members().size()) {}

std::optional<LaneExchange::Failure> LaneExchange::start(std::span<const Mesh::Bytes> to_each,
                                                         std::vector<MessageBytes>& from_each) {
  ++number_;
  from_each.resize(to_each.size());
  for (size_t p = 0; p < to_each.size(); ++p) {
    if (static_cast<int>(p) == state_.rank()) continue;
    writers_[p].start({.bytes = to_each[p].size(),
                       .number = number_,
                       .mark = kExchangeMark,
                       .check = lane_check(lanes_, static_cast<int>(p), number_, to_each[p])},
                      to_each[p]);
    incoming_[p] = {};
  }
  const auto own = to_each[static_cast<size_t>(state_.rank())];
  auto& kept = from_each[static_cast<size_t>(state_.rank())];
  if (!kept.resize(own.size())) {
    return Failure{Status(Code::kResourceExhausted, fmt::format("no memory for {} bytes", own.size()))};
  }
  if (!own.empty()) std::memcpy(kept.data(), own.data(), own.size());
  return {};
}

std::optional<LaneExchange::Failure> LaneExchange::run(std::span<const Mesh::Bytes> to_each,
                                                       std::vector<MessageBytes>& from_each, Duration timeout) {
  if (auto failure = start(to_each, from_each)) return failure;
  const TimePoint deadline = mesh_deadline(timeout);
  const int size = state_.size();
  while (true) {
    const uint32_t ticket = lanes_.ticket(Lanes::Side::kIn);
    bool moved = false, all_done = true;
    for (int i = 1; i < size; ++i) {
      const int p = (state_.rank() + i) % size;
      const auto index = static_cast<size_t>(p);
      if (auto failure = step(p, from_each[index], moved)) return failure;
      wants_[index] = {.read = !incoming_[index].done, .write = !writers_[index].done()};
      all_done = all_done && !wants_[index].read && !wants_[index].write;
    }
    if (all_done) return {};
    if (moved) continue;
    if (auto status = state_.failure()) return Failure{std::move(*status)};
    if (SteadyClock().now() >= deadline) return late(timeout);
    lanes_.wait(Lanes::Side::kIn, ticket, wants_, Lanes::Until::kAllReads, deadline);
  }
}

std::optional<LaneExchange::Failure> LaneExchange::step(int process, MessageBytes& into, bool& moved) {
  LaneWriter& writer = writers_[static_cast<size_t>(process)];
  if (!writer.done()) {
    auto wrote = writer.go_on(lanes_, process);
    if (!wrote) return Failure{std::move(wrote.error()), true, process};
    moved = moved || *wrote;
  }
  return read(process, into, moved);
}

std::optional<LaneExchange::Failure> LaneExchange::read(int process, MessageBytes& into, bool& moved) {
  Incoming& in = incoming_[static_cast<size_t>(process)];
  while (!in.done) {
    const bool in_header = in.position < sizeof(LaneHeader);
    const auto room = in_header ? std::as_writable_bytes(std::span(&in.header, 1)).subspan(in.position)
                                : into.span().subspan(in.position - sizeof(LaneHeader));
    auto count = lanes_.read_some(process, room);
    if (!count) return Failure{std::move(count.error()), true, process};
    if (*count == 0) return {};
    moved = true;
    in.position += *count;
    if (in_header && in.position == sizeof(LaneHeader)) {
      if (auto failure = take_header(process, into)) return failure;
    }
    in.done = in.position >= sizeof(LaneHeader) && in.position == sizeof(LaneHeader) + in.header.bytes;
    if (in.done && lane_check(lanes_, process, number_, into.span()) != in.header.check) {
      return Failure{state_.lost(process, "its part of an exchange was altered on its way"), false, process};
    }
    if (!in_header) return {};
  }
  return {};
}

std::optional<LaneExchange::Failure> LaneExchange::take_header(int process, MessageBytes& into) {
  const LaneHeader& header = incoming_[static_cast<size_t>(process)].header;
  if (header.mark != kExchangeMark || header.bytes > state_.options().message_bytes_max) {
    return Failure{state_.lost(process, "what it sent in an exchange is not one"), false, process};
  }
  if (header.number != number_) {
    return Failure{state_.lost(process, fmt::format("it is at exchange {}, this process at {}: they don't take the "
                                                    "same steps",
                                                    header.number, number_)),
                   false, process};
  }
  if (into.resize(header.bytes)) return {};
  return Failure{Status(Code::kResourceExhausted, fmt::format("no memory for {} bytes of an exchange", header.bytes))};
}

LaneExchange::Failure LaneExchange::late(Duration timeout) const {
  int first = -1;
  std::string others;
  for (int p = 0; p < state_.size(); ++p) {
    const auto want = wants_[static_cast<size_t>(p)];
    if (p == state_.rank() || (!want.read && !want.write)) continue;
    if (first >= 0) others += fmt::format(", nor has {}", state_.name_of(p));
    if (first < 0) first = p;
  }
  return Failure{state_.lost(first, overdue(timeout, "its part of an exchange") + others), false, first};
}

}  // namespace baton::parallel
