// Sends a load to an OpenAI-compatible server and times every chunk: many connections, one thread, no locks.
//
// What a chunk costs here is one read of the socket, a search for the event's end and one pass of a JSON parser: a few
// microseconds, so that the server is the limit and not the bench.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/metrics.h"
#include "bench/payload.h"
#include "bench/sample.h"
#include "net/http.h"

namespace baton::bench {

// "http://host:port" or "https://..." -> where to connect; a path behind it goes before every target.
struct Origin {
  std::string host;
  int port = 80;
  bool tls = false;
  std::string prefix;
};
Result<Origin> parse_base_url(const std::string& url);

struct LoadOptions {
  Origin origin;
  std::string endpoint = "/v1/completions";
  net::HttpHeaders headers;       // Authorization and what --header gives
  std::string request_id_prefix;  // x-request-id is this with the request's number
  bool verify_tls = true;
  PayloadOptions payload;
  std::vector<double> send_at_s;  // per sample, ascending
  int64_t max_concurrency = 0;    // 0: no limit
  bool keep_text = false;
  bool progress = true;
  bool stop_on_interrupt = true;  // SIGINT ends the load early; what there is is returned
};

struct LoadResult {
  std::vector<RequestRecord> records;  // one per sample
  double duration_s = 0;               // from the start to the last request's end
  bool interrupted = false;
  double client_cpu_s = 0;  // CPU time of the sending thread
};
// Blocks the calling thread, which does all the work.
LoadResult run_load(std::span<const Sample> samples, const LoadOptions& options);

// One small request: the answer's status and body. Errors are those of the connection.
Result<net::HttpResponse> fetch(const LoadOptions& options, const std::string& target);

}  // namespace baton::bench
