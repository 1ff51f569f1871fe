// Replicas of an expert-parallel group in step, over a mesh of one member each.
//
// Before a step all exchange one byte: whether they have rows. When none has, the group rests: every replica learns it
// from the same exchange, and nobody waits for anybody. Who has rows again sends a wake round the ring (a hop is some
// 50 us) with the number of that rest, so that a late wake of an earlier one moves nobody.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/replica_group.h"
#include "models/model.h"
#include "parallel/mesh.h"

namespace baton::engine {

class Lockstep final : public ReplicaGroup {
 public:
  // `wake`: from any thread, makes the engine take a step. The mesh outlives the group, and is used by nothing else but
  // the models' exchange.
  Lockstep(parallel::Mesh& mesh, std::function<void()> wake);
  ~Lockstep() override;

  Result<bool> step_together(bool rows_here) override;
  bool resting() const override { return resting_; }
  void leave(const std::string& reason) override { mesh_.leave(reason); }

 private:
  Result<bool> any_has_rows(bool rows_here);
  void watch();
  bool woken() const { return woken_rest_.load() >= rest_; }

  parallel::Mesh& mesh_;
  const std::function<void()> wake_;
  bool resting_ = true;
  uint64_t rest_ = 1;                    // number of the rest we are in, or of the next one
  std::atomic<uint64_t> woken_rest_{0};  // the last one that somebody ended
  std::vector<parallel::MessageBytes> theirs_;
  std::thread watcher_;
};

// What models exchange in a layer of experts.
class MeshExchange final : public models::ReplicaExchange {
 public:
  explicit MeshExchange(parallel::Mesh& mesh) : mesh_(mesh) {}
  int size() const override { return mesh_.size(); }
  int rank() const override { return mesh_.rank(); }
  Result<std::vector<std::vector<std::byte>>> exchange(std::vector<std::vector<std::byte>> to_each) override;

 private:
  parallel::Mesh& mesh_;
  std::vector<parallel::MessageBytes> theirs_;
};

}  // namespace baton::engine
