// What can be read in a template without running it: the hand-off's port, the sizes beside tp, arguments that nobody
// passes. Pure; a template is a shell script, so what is computed there stays unknown.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/launch_plan.h"

namespace baton::launcher {

struct TemplateFacts {
  std::optional<int> kv_port;        // "kv_port": 36000, "36000", or a KV_PORT=36000 that it takes
  int ranks_per_tp = 1;              // pipeline size * prefill context size, where they are plain numbers
  std::vector<std::string> unknown;  // "$8": positional arguments that no launch passes
};
TemplateFacts scan_template(std::string_view text);

struct PortRange {
  std::string what;  // "API ports", "kv_port of dp0 to dp3"
  int first = 0, last = 0;
};
// The ranges of ports that this launch will use on this host.
std::vector<PortRange> port_ranges(const LaunchPlan& plan, const TemplateFacts& facts);
// kInvalidArgument names the two ranges that share a port, or the one that ends beyond 65535.
Result<void> check_port_ranges(const std::vector<PortRange>& ranges);

}  // namespace baton::launcher
