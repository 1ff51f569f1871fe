// Offers of an engine whose ranks live in several processes: each keeps its part of what is offered, under one id, and
// the leader frees the blocks when all have let go.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "parallel/mesh.h"
#include "transfer/connector.h"

namespace baton::engine {

// In a process that is led.
class MemberOffers {
 public:
  // producer may be null: nothing is offered then.
  MemberOffers(parallel::Mesh& mesh, transfer::KvProducer* producer) : mesh_(mesh), producer_(producer) {}
  bool pending() const { return !held_.empty(); }
  struct Limits {
    int64_t blocks = 0, slots = 0;
    int64_t block_tokens = 0;
    int64_t max_model_len = 0;
  };
  // Bodies of the leader's commands.
  Result<void> push(std::span<const std::byte> body, const Limits& limits);
  Result<void> offer(std::span<const std::byte> body, const Limits& limits);
  Result<void> revoke(std::span<const std::byte> body);
  // Tells the leader what its connector has let go of.
  Result<void> report_released();

 private:
  parallel::Mesh& mesh_;
  transfer::KvProducer* const producer_;
  std::set<std::string> held_;  // offers, and tickets of pushes
};

// In the leading process: the producer that the engine sees. Engine thread.
class LeaderProducer final : public transfer::KvProducer {
 public:
  LeaderProducer(parallel::Mesh& mesh, transfer::KvProducer& own) : mesh_(mesh), own_(own) {}
  bool pushes() const override { return own_.pushes(); }
  void plan_push(transfer::PushStep step) override;
  wire::KvTransferParams offer(transfer::Offer offer) override;
  std::vector<std::string> poll_released() override;
  void revoke(const std::string& request_id) override;

 private:
  void tell_all(std::span<const std::byte> message);
  void let_go(const std::string& id, std::vector<std::string>& free);

  parallel::Mesh& mesh_;
  transfer::KvProducer& own_;
  std::map<std::string, int> holders_;  // offer or ticket to how many processes still keep it
};

// Where a member's connector is reached, as it says when it is ready.
std::string encode_address(const wire::HandoffAddress& address);
Result<wire::HandoffAddress> decode_address(const std::string& text);

std::vector<std::byte> encode_push(const transfer::PushStep& step);
Result<transfer::PushStep> decode_push(std::span<const std::byte> body);
std::vector<std::byte> encode_offer(const transfer::Offer& offer);
Result<transfer::Offer> decode_offer(std::span<const std::byte> body);

}  // namespace baton::engine
