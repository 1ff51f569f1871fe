// Inner helpers of the pull connector.
#pragma once

#include "net/stream.h"
#include "transfer/holdings.h"
#include "transfer/pull_connector.h"

namespace baton::transfer {

// What the options' ranks hold. Fills in what follows from other members. kInvalidArgument says what can't be used.
Result<std::shared_ptr<const Holdings>> complete_options(PullConnectorOptions& options);
// From the system's generator; never 0.
uint64_t random_id();
// Of a decode engine: `arena` is that of all its ranks, which hold the whole model. kUnimplemented when it is several
// processes.
Result<std::shared_ptr<const Holdings>> complete_consumer_options(PullConnectorOptions& options,
                                                                  std::span<const std::byte> arena);
// Bytes of the largest entry of a block; 0 of an empty geometry.
int64_t largest_entry(const kv::PagedGeometry& geometry);
net::TlsOptions tls_options(const TlsFiles& files);

}  // namespace baton::transfer
