// Seal tables of all ranks of a process, kept in step: a block has one generation, whichever rank it is read on, since
// all ranks' tables are opened and sealed together. The producer's thread writes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv/seal_table.h"
#include "transfer/holdings.h"

namespace baton::transfer {

class RankSeals {
 public:
  // tables: arenas.table_bytes() zeroed bytes; data: arenas.data_bytes().
  static Result<RankSeals> over(std::shared_ptr<const Holdings> holdings, std::span<std::byte> tables,
                                std::span<const std::byte> data);

  // To seal a block's first `tokens` tokens (of all ranks together) or a slot: begin(), then seal() for each rank in
  // turn, which is where the time goes. Nothing else of it may be read in between.
  void begin(int32_t index, int tokens, bool state);
  // Bytes that were covered.
  int64_t seal(int rank, int32_t index, int tokens, bool state);
  // Once sealed on all ranks.
  uint64_t generation(int32_t index, bool state) const;
  void reopen(int32_t index, bool state);
  // Null where the rank keeps no such thing.
  const kv::SealReader* reader(int rank, bool state) const;

 private:
  struct Tables {
    std::optional<kv::SealTable> blocks, slots;
  };
  explicit RankSeals(std::shared_ptr<const Holdings> holdings) : holdings_(std::move(holdings)) {}
  std::optional<kv::SealTable>& table(size_t rank, bool state) {
    return state ? tables_[rank].slots : tables_[rank].blocks;
  }
  int tokens_on(size_t rank, int tokens, bool state) const {
    return state ? tokens : holdings_->tokens_on(static_cast<int>(rank), tokens);
  }

  std::shared_ptr<const Holdings> holdings_;
  std::vector<Tables> tables_;
};

// Readers over a peer's tables.
struct RankReaders {
  std::vector<std::optional<kv::SealReader>> blocks, slots;
  static Result<RankReaders> over(const Holdings& holdings, std::span<const std::byte> tables);
};

}  // namespace baton::transfer
