// Inner helpers of the pull connector.
#pragma once

#include "net/stream.h"
#include "transfer/pull_connector.h"

namespace baton::transfer {

// From the system's generator; never 0.
uint64_t random_id();
// Bytes of the largest entry of a block; 0 of an empty geometry.
int64_t largest_entry(const kv::PagedGeometry& geometry);
// Of an arena's seal table: where the slots' records begin.
int64_t block_table_bytes(const kv::CacheLayout& layout);
// Fills in what follows from other members. kInvalidArgument says what can't be used.
Result<void> complete_options(PullConnectorOptions& options);
net::TlsOptions tls_options(const TlsFiles& files);

}  // namespace baton::transfer
