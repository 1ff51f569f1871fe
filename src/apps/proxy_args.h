// The command line of `baton proxy`: the flags of vLLM-Ascend's P-first example proxy, and our own.
#pragma once

#include <string>
#include <vector>

#include "proxy/proxy_server.h"

namespace baton::apps {

struct ProxyArgs {
  proxy::ProxyOptions options;
  std::string log_level = "INFO";
  std::string notice;  // to be said once at start; empty: nothing
  std::string help;    // not empty: print it and end well
};

// `args` without the program's and the subcommand's name. `engine_api_key`: the value of OPENAI_API_KEY, or "".
// kInvalidArgument names the flag and what it wants.
Result<ProxyArgs> parse_proxy_args(std::vector<std::string> args, std::string engine_api_key);

}  // namespace baton::apps
