// Experts over the replicas of an expert-parallel group: a row goes to the replicas that hold its experts, and the
// experts' outputs come back. Who computes a pair changes no bit of it, and pairs come back to their slots.
//
// Each layer and step in passes of as many rows of each replica as fit, until all replicas have none left:
//   offer()    rank 0 of the team sends each replica its pairs and their rows, and takes theirs
//   (the team gathers; each rank computes the pairs of its experts; the team gathers)
//   give_back()  rank 0 sends the outputs and takes those of its own pairs
//   (the team gathers, and combines)
// Messages are of another process: they are checked. One that is not what it must be breaks the team, as a lost one
// does: parallel::GroupBroken.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/layers/team.h"
#include "models/model.h"

namespace baton::models {

// Where the rank stands and, on rank 0 of the team, the exchange. The default: experts on one replica.
struct MoeReplicaSetup {
  parallel::RankPlace place;
  ReplicaExchange* exchange = nullptr;
};

class MoeReplicas {
 public:
  MoeReplicas() = default;
  // pass_rows: of all replicas together. width: of an expert's input and output. first_expert[p]: of the experts that
  // replica p holds; one more for the end. exchange: null on ranks other than 0.
  struct Shape {
    int64_t pass_rows = 0;
    int slots = 0;
    int64_t width = 0;
    std::vector<int64_t> first_expert;
  };
  // The same call on each rank of the team.
  static Result<MoeReplicas> allocate(parallel::Group group, Shape shape, ReplicaExchange* exchange);

  int count() const { return static_cast<int>(shape_.first_expert.size()) - 1; }
  // Rows of this replica that a pass takes, and pairs that can come in at most.
  int64_t pass_rows() const { return std::max<int64_t>(1, shape_.pass_rows / count()); }
  int64_t pairs_max() const { return pass_rows() * count() * shape_.slots; }

  // Rank 0 alone. ids: [rows, slots]; x: [rows, width]. more: whether this replica has rows for another pass.
  void offer(const int32_t* ids, const float* x, int64_t rows, bool more);
  // After the team has gathered: what came in. Pair i is of row source_rows()[i] of x() and of expert experts()[i].
  int64_t pairs() const { return control_->as<int64_t>()[0]; }
  bool more() const { return control_->as<int64_t>()[1] != 0; }  // some replica has rows left
  const int32_t* experts() const { return pairs_->as<int32_t>(); }
  const int32_t* source_rows() const { return pairs_->as<int32_t>() + pairs_max(); }
  const float* x() const { return rows_->as<float>(); }
  // Rank 0 alone. outputs: of pair i that came in at outputs[places[i] * width].
  void give_back(const float* outputs, const int32_t* places);
  // After the team has gathered: outputs of the replica's own pairs, [rows, slots, width].
  const float* returned() const { return returned_->as<float>(); }

 private:
  struct Sent {
    std::vector<int32_t> pairs;  // row * slots + slot, in the order sent
  };
  std::vector<std::byte> message_to(int replica, const int32_t* ids, const float* x, int64_t rows, bool more);
  void take(int replica, std::span<const std::byte> message);
  [[noreturn]] void refuse(int replica, const std::string& what) const;

  Shape shape_;
  ReplicaExchange* exchange_ = nullptr;
  std::vector<Sent> sent_;      // to each replica in this pass
  std::vector<int64_t> taken_;  // pairs of each replica in this pass
  int64_t rows_taken_ = 0;
  // Of the team: the counts; experts and rows of the pairs that came in; their rows; outputs that came back.
  std::shared_ptr<tensor::Buffer> control_, pairs_, rows_, returned_;
};

}  // namespace baton::models
