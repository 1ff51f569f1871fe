#include "models/layers/moe_replicas.h"

#include <fmt/format.h>

#include <cstring>

namespace baton::models {
namespace {

// What a message begins with; then `pairs` of (row of the message, expert), then the rows.
struct Header {
  int32_t rows = 0;
  int32_t pairs = 0;
  int32_t width = 0;
  int32_t more = 0;
};

struct Pair {
  int32_t row = 0;
  int32_t expert = 0;
};

}  // namespace

Result<MoeReplicas> MoeReplicas::allocate(parallel::Group group, Shape shape, ReplicaExchange* exchange) {
  MoeReplicas replicas;
  replicas.shape_ = std::move(shape);
  replicas.exchange_ = exchange;
  const int count = replicas.count();
  replicas.sent_.resize(static_cast<size_t>(count));
  replicas.taken_.resize(static_cast<size_t>(count));
  const int64_t pairs = replicas.pairs_max(), rows = replicas.pass_rows(), width = replicas.shape_.width;
  const auto share = [&](std::shared_ptr<tensor::Buffer>& buffer, int64_t words) -> Result<void> {
    BATON_TRY_ASSIGN(buffer, group.share(static_cast<size_t>(words) * 4));
    return {};
  };
  BATON_TRY(share(replicas.control_, 16));
  BATON_TRY(share(replicas.pairs_, 2 * pairs));
  BATON_TRY(share(replicas.rows_, rows * count * width));
  BATON_TRY(share(replicas.returned_, rows * replicas.shape_.slots * width));
  return replicas;
}

void MoeReplicas::refuse(int replica, const std::string& what) const {
  throw parallel::GroupBroken(
      fmt::format("expert parallelism: the message of replica {} {}; do all replicas serve the same model and grid?",
                  replica, what));
}

std::vector<std::byte> MoeReplicas::message_to(int replica, const int32_t* ids, const float* x, int64_t rows,
                                               bool more) {
  const int64_t begin = shape_.first_expert[static_cast<size_t>(replica)];
  const int64_t end = shape_.first_expert[static_cast<size_t>(replica) + 1];
  auto& sent = sent_[static_cast<size_t>(replica)].pairs;
  sent.clear();
  std::vector<Pair> pairs;
  std::vector<int64_t> wanted;
  for (int64_t r = 0; r < rows; ++r) {
    const size_t before = pairs.size();
    for (int s = 0; s < shape_.slots; ++s) {
      const int32_t expert = ids[r * shape_.slots + s];
      if (expert < begin || expert >= end) continue;
      pairs.push_back({static_cast<int32_t>(wanted.size()), expert});
      sent.push_back(static_cast<int32_t>(r * shape_.slots + s));
    }
    if (pairs.size() != before) wanted.push_back(r);
  }
  const Header header = {.rows = static_cast<int32_t>(wanted.size()),
                         .pairs = static_cast<int32_t>(pairs.size()),
                         .width = static_cast<int32_t>(shape_.width),
                         .more = more ? 1 : 0};
  const size_t row_bytes = static_cast<size_t>(shape_.width) * sizeof(float);
  std::vector<std::byte> message(sizeof(header) + pairs.size() * sizeof(Pair) + wanted.size() * row_bytes);
  std::byte* at = message.data();
  std::memcpy(at, &header, sizeof(header));
  at += sizeof(header);
  if (!pairs.empty()) std::memcpy(at, pairs.data(), pairs.size() * sizeof(Pair));
  at += pairs.size() * sizeof(Pair);
  for (const int64_t r : wanted) {
    std::memcpy(at, x + r * shape_.width, row_bytes);
    at += row_bytes;
  }
  return message;
}

// Appends what a replica sent to what came in before.
void MoeReplicas::take(int replica, std::span<const std::byte> message) {
  Header header;
  if (message.size() < sizeof(header)) refuse(replica, "is cut short");
  std::memcpy(&header, message.data(), sizeof(header));
  if (header.width != shape_.width) {
    refuse(replica, fmt::format("has rows of {}, this one's are of {}", header.width, shape_.width));
  }
  if (header.rows < 0 || header.rows > pass_rows() || header.pairs < 0 ||
      header.pairs > int64_t{header.rows} * shape_.slots) {
    refuse(replica,
           fmt::format("has {} pairs of {} rows, at most {} rows go at once", header.pairs, header.rows, pass_rows()));
  }
  const size_t pair_bytes = static_cast<size_t>(header.pairs) * sizeof(Pair);
  const size_t row_bytes = static_cast<size_t>(header.rows * shape_.width) * sizeof(float);
  if (message.size() != sizeof(header) + pair_bytes + row_bytes) {
    refuse(replica, fmt::format("has {} bytes for {} pairs of {} rows", message.size(), header.pairs, header.rows));
  }
  const auto own = static_cast<size_t>(exchange_->rank());
  auto* control = control_->as<int64_t>();
  int32_t* experts = pairs_->as<int32_t>() + control[0];
  for (int64_t i = 0; i < header.pairs; ++i) {
    Pair pair;
    std::memcpy(&pair, message.data() + sizeof(header) + static_cast<size_t>(i) * sizeof(Pair), sizeof(Pair));
    if (pair.row < 0 || pair.row >= header.rows || pair.expert < shape_.first_expert[own] ||
        pair.expert >= shape_.first_expert[own + 1]) {
      refuse(replica,
             fmt::format("asks for expert {} of row {}, which this replica doesn't hold", pair.expert, pair.row));
    }
    experts[i] = pair.expert;
    experts[pairs_max() + i] = static_cast<int32_t>(rows_taken_) + pair.row;
  }
  if (row_bytes > 0) {
    std::memcpy(rows_->as<float>() + rows_taken_ * shape_.width, message.data() + sizeof(header) + pair_bytes,
                row_bytes);
  }
  taken_[static_cast<size_t>(replica)] = header.pairs;
  rows_taken_ += header.rows;
  control[0] += header.pairs;
  if (header.more != 0) control[1] = 1;
}

void MoeReplicas::offer(const int32_t* ids, const float* x, int64_t rows, bool more) {
  std::vector<std::vector<std::byte>> messages;
  for (int p = 0; p < count(); ++p) messages.push_back(message_to(p, ids, x, rows, more));
  auto came = exchange_->exchange(std::move(messages));
  if (!came) throw parallel::GroupBroken(came.error().message());
  auto* control = control_->as<int64_t>();
  control[0] = control[1] = 0;
  rows_taken_ = 0;
  for (int p = 0; p < count(); ++p) {
    if (p >= std::ssize(*came)) refuse(p, "is missing");
    take(p, (*came)[static_cast<size_t>(p)]);
  }
}

void MoeReplicas::give_back(const float* outputs, const int32_t* places) {
  const size_t row_bytes = static_cast<size_t>(shape_.width) * sizeof(float);
  std::vector<std::vector<std::byte>> messages;
  int64_t pair = 0;
  for (int p = 0; p < count(); ++p) {
    const int64_t end = pair + taken_[static_cast<size_t>(p)];
    std::vector<std::byte> message(static_cast<size_t>(end - pair) * row_bytes);
    for (std::byte* at = message.data(); pair < end; ++pair, at += row_bytes) {
      std::memcpy(at, outputs + places[pair] * shape_.width, row_bytes);
    }
    messages.push_back(std::move(message));
  }
  auto came = exchange_->exchange(std::move(messages));
  if (!came) throw parallel::GroupBroken(came.error().message());
  for (int p = 0; p < count(); ++p) {
    const auto& sent = sent_[static_cast<size_t>(p)].pairs;
    if (p >= std::ssize(*came) || (*came)[static_cast<size_t>(p)].size() != sent.size() * row_bytes) {
      refuse(p, fmt::format("does not hold the {} outputs that it was asked for", sent.size()));
    }
    const std::byte* from = (*came)[static_cast<size_t>(p)].data();
    for (size_t i = 0; i < sent.size(); ++i) {
      std::memcpy(returned_->as<float>() + sent[i] * shape_.width, from + i * row_bytes, row_bytes);
    }
  }
}

}  // namespace baton::models
