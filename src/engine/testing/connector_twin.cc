#include "engine/testing/connector_twin.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tensor/buffer.h"

namespace baton::engine::testing {

transfer::PullResult TwinLink::copy(const Waiting& waiting) {
  const auto& pull = waiting.pull;
  transfer::PullResult result{.request_id = pull.request_id, .outcome = {}};
  const auto found = offers_.find(pull.params.remote_request_id);
  if (waiting.cancelled || found == offers_.end()) {
    result.valid_tokens = pull.skip_tokens;
    result.outcome = fail(Code::kUnavailable, "no such offer");
    return result;
  }
  const auto& offer = found->second;
  if (offer.prompt != pull.prompt) {
    result.valid_tokens = pull.skip_tokens;
    result.outcome = fail(Code::kMismatch, "the offer is the KV of another prompt");
    return result;
  }
  const int64_t valid = valid_tokens ? valid_tokens(pull) : pull.token_count;
  const auto& blocks = target_.layout.blocks;
  const int64_t block_bytes = blocks.block_bytes();
  for (size_t i = static_cast<size_t>(pull.skip_tokens / blocks.block_size()); i < pull.blocks.size(); ++i) {
    std::byte* to = target_.memory + target_.layout.block_offset(pull.blocks[i].value);
    const bool whole = static_cast<int64_t>(i) * blocks.block_size() < valid;
    if (whole) {
      std::memcpy(to, source_.memory + source_.layout.block_offset(offer.blocks[i].value),
                  static_cast<size_t>(block_bytes));
    } else {
      std::memset(to, 0xEE, static_cast<size_t>(block_bytes));
    }
    result.bytes += block_bytes;
  }
  result.valid_tokens = std::clamp(valid, pull.skip_tokens, pull.token_count);
  if (pull.state_slot) copy_state(pull, offer, valid >= pull.token_count, result);
  result.seconds = 0.001;
  if (valid < pull.token_count || (pull.state_slot && !result.state_valid))
    result.outcome = fail(Code::kDataLoss, "checksum of a unit");
  return result;
}

void TwinLink::copy_state(const transfer::Pull& pull, const transfer::Offer& offer, bool whole,
                          transfer::PullResult& result) {
  if (valid_state) whole = whole && valid_state(pull);
  const auto bytes = static_cast<size_t>(target_.layout.states.block_bytes());
  std::byte* to = target_.memory + target_.layout.slot_offset(*pull.state_slot);
  result.state_valid = whole && offer.state_slot && offer.token_count == pull.token_count;
  if (result.state_valid) {
    std::memcpy(to, source_.memory + source_.layout.slot_offset(*offer.state_slot), bytes);
  } else {
    std::memset(to, 0xEE, bytes);
  }
  result.bytes += static_cast<int64_t>(bytes);
}

void TwinLink::finish(Waiting waiting) {
  completed_.push_back(copy(waiting));
  release(waiting.pull.params.remote_request_id);
  if (wake_consumer_) wake_consumer_();
}

void TwinLink::release(const std::string& request_id) {
  if (offers_.erase(request_id) == 0) return;
  released_.push_back(request_id);
  if (wake_producer_) wake_producer_();
}

void TwinLink::deliver() {
  std::lock_guard lock(mutex_);
  while (!waiting_.empty()) {
    finish(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void TwinLink::expire() {
  std::lock_guard lock(mutex_);
  while (!offers_.empty()) release(std::string(offers_.begin()->first));
}

TwinLink::Counts TwinLink::counts() {
  std::lock_guard lock(mutex_);
  return counts_;
}

class TwinProducer final : public transfer::KvProducer {
 public:
  explicit TwinProducer(std::shared_ptr<TwinLink> link) : link_(std::move(link)) {}
  wire::KvTransferParams offer(transfer::Offer offer) override {
    std::lock_guard lock(link_->mutex_);
    ++link_->counts_.offered;
    wire::KvTransferParams params;
    params.do_remote_prefill = true;
    params.remote_engine_id = "twin";
    params.remote_request_id = offer.request_id;
    params.remote_num_prompt_tokens = offer.token_count;
    params.last_token_id = offer.last_token_id;
    link_->offers_.emplace(offer.request_id, std::move(offer));
    return params;
  }
  std::vector<std::string> poll_released() override {
    std::lock_guard lock(link_->mutex_);
    return std::exchange(link_->released_, {});
  }
  void revoke(const std::string& request_id) override {
    std::lock_guard lock(link_->mutex_);
    ++link_->counts_.revoked;
    link_->release(request_id);
  }

 private:
  const std::shared_ptr<TwinLink> link_;
};

class TwinConsumer final : public transfer::KvConsumer {
 public:
  explicit TwinConsumer(std::shared_ptr<TwinLink> link) : link_(std::move(link)) {}
  void start(transfer::Pull pull) override {
    std::lock_guard lock(link_->mutex_);
    ++link_->counts_.pulled;
    TwinLink::Waiting waiting{.pull = std::move(pull)};
    if (link_->manual) {
      link_->waiting_.push_back(std::move(waiting));
    } else {
      link_->finish(std::move(waiting));
    }
  }
  void cancel(const std::string& request_id) override {
    std::lock_guard lock(link_->mutex_);
    ++link_->counts_.cancelled;
    for (auto& waiting : link_->waiting_) {
      if (waiting.pull.request_id == request_id) waiting.cancelled = true;
    }
  }
  void decline(const wire::KvTransferParams& params) override {
    std::lock_guard lock(link_->mutex_);
    ++link_->counts_.declined;
    link_->release(params.remote_request_id);
  }
  std::vector<transfer::PullResult> poll_completed() override {
    std::lock_guard lock(link_->mutex_);
    return std::exchange(link_->completed_, {});
  }

 private:
  const std::shared_ptr<TwinLink> link_;
};

namespace {

class TwinHost final : public KvHost {
 public:
  TwinHost(KvHostRequest request, tensor::Buffer memory, std::shared_ptr<TwinLink> link, TwinSide side)
      : request_(std::move(request)), memory_(std::move(memory)), link_(std::move(link)), side_(side) {}
  ~TwinHost() override {
    if (link_ != nullptr) link_->disconnect(side_);
  }
  std::byte* memory(int) override { return memory_.data(); }
  transfer::KvProducer* producer() override { return producer_.get(); }
  transfer::KvConsumer* consumer() override { return consumer_.get(); }
  void on_block_reuse(BlockId block) override {
    std::memset(memory_.data() + layout().block_offset(block.value), 0xAB,
                static_cast<size_t>(layout().blocks.block_bytes()));
  }
  void on_slot_reuse(int32_t slot) override {
    std::memset(memory_.data() + layout().slot_offset(slot), 0xAB, static_cast<size_t>(layout().states.block_bytes()));
  }

  std::unique_ptr<transfer::KvProducer> producer_;
  std::unique_ptr<transfer::KvConsumer> consumer_;

 private:
  const kv::CacheLayout& layout() const { return request_.ranks[0].layout; }

  const KvHostRequest request_;
  tensor::Buffer memory_;
  const std::shared_ptr<TwinLink> link_;
  const TwinSide side_;
};

}  // namespace

MakeKvHost make_twin_host(std::shared_ptr<TwinLink> link, TwinSide side) {
  return [link, side](KvHostRequest request) -> Result<std::unique_ptr<KvHost>> {
    BATON_CHECK(request.ranks.size() == 1, "the twin serves engines of one rank, not {}", request.ranks.size());
    const auto layout = request.ranks[0].layout;
    const auto bytes = static_cast<size_t>(layout.data_bytes());
    BATON_TRY_ASSIGN(auto memory, tensor::Buffer::allocate(bytes));
    auto host = std::make_unique<TwinHost>(request, std::move(memory), link, side);
    if (link != nullptr) link->connect(side, host->memory(0), layout, request.wake);
    if (side == TwinSide::kProducer) host->producer_ = std::make_unique<TwinProducer>(link);
    if (side == TwinSide::kConsumer) host->consumer_ = std::make_unique<TwinConsumer>(link);
    return host;
  };
}

void TwinLink::connect(TwinSide side, std::byte* memory, const kv::CacheLayout& layout, transfer::WakeEngine wake) {
  std::lock_guard lock(mutex_);
  if (side == TwinSide::kProducer) {
    source_ = {memory, layout};
    wake_producer_ = std::move(wake);
  } else {
    target_ = {memory, layout};
    wake_consumer_ = std::move(wake);
  }
}

void TwinLink::disconnect(TwinSide side) {
  std::lock_guard lock(mutex_);
  (side == TwinSide::kProducer ? wake_producer_ : wake_consumer_) = nullptr;
}

}  // namespace baton::engine::testing
