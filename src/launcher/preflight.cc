#include "launcher/preflight.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "launcher/template_scan.h"

namespace baton::launcher {
namespace {

constexpr int64_t kLargestTemplate = 1 << 20;

Result<std::string> read_template(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    return fail(Code::kNotFound, "template {}: {}; write it there or name another with --template", path,
                std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return fail(Code::kNotFound, "template {}: not a file", path);
  if (status.st_size > kLargestTemplate) {
    return fail(Code::kOutOfRange, "template {}: {} bytes; a shell script of at most {} is expected", path,
                status.st_size, kLargestTemplate);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return fail(Code::kNotFound, "template {}: can't be read", path);
  return std::move(text).str();
}

// As a server would: with SO_REUSEADDR, so that only a port with a listener counts as taken. Errors other than a taken
// port or a privileged one (no IPv6 here, an address of another host) say nothing.
Result<void> try_bind(int family, const sockaddr* address, socklen_t length) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return {};
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  const int error = bind(socket, address, length) == 0 ? 0 : errno;
  close(socket);
  if (error == EADDRINUSE || error == EACCES) return fail(Code::kUnavailable, "{}", std::strerror(error));
  return {};
}

Result<void> check_free(const std::string& what, int port) {
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(static_cast<uint16_t>(port));
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = any4.sin_port;
  auto bound = try_bind(AF_INET, reinterpret_cast<const sockaddr*>(&any4), sizeof(any4));
  if (bound) bound = try_bind(AF_INET6, reinterpret_cast<const sockaddr*>(&any6), sizeof(any6));
  if (bound) return {};
  return fail(Code::kUnavailable, "{}: port {}: {}; end what uses it, or choose others", what, port,
              bound.error().message());
}

// Only where rank 0 starts here; an address of another host binds nowhere, and that is no error of this host's.
Result<void> check_rpc_port(const LaunchOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(options.dp_address.c_str(), fmt::format("{}", options.dp_rpc_port).c_str(), &hints, &list) != 0) {
    return fail(Code::kInvalidArgument, "--dp-address '{}': no such host", options.dp_address);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  if (options.dp_rank_start > 0) return {};
  const auto bound = try_bind(list->ai_family, list->ai_addr, list->ai_addrlen);
  if (bound) return {};
  return fail(Code::kUnavailable, "--dp-rpc-port {} at {}: {}; the ranks of a group meet there, so it must be free",
              options.dp_rpc_port, options.dp_address, bound.error().message());
}

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(fmt::format("{}/{}", folder, program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Result<PreflightReport> check_machine(const LaunchPlan& plan) {
  PreflightReport report;
  const auto& options = plan.options;
  BATON_TRY_ASSIGN(const std::string text, read_template(options.template_path));
  const auto facts = scan_template(text);
  const auto ranges = port_ranges(plan, facts);
  BATON_TRY(check_port_ranges(ranges));
  for (const auto& range : ranges) {
    if (range.what == "--dp-rpc-port") continue;
    for (int port = range.first; port <= range.last; ++port) BATON_TRY(check_free(range.what, port));
  }
  BATON_TRY(check_rpc_port(options));
  for (const auto& name : facts.unknown) {
    report.warnings.push_back(fmt::format("template {} reads {}, and a launch passes seven arguments: $1 to $7",
                                          options.template_path, name));
  }
  if (text.contains("vllm serve") && !on_path("vllm")) {
    report.warnings.push_back(fmt::format(
        "template {} runs `vllm`, which is not on PATH: put Baton's shim folder there", options.template_path));
  }
  const int devices = options.dp_size_local * options.tp_size;
  if (const int cores = usable_cores(); devices > cores) {
    report.warnings.push_back(fmt::format(
        "{} local ranks of {} devices each are {} devices, and this machine has {} usable cores: they share "
        "cores and are slower",
        options.dp_size_local, options.tp_size, devices, cores));
  }
  return report;
}

}  // namespace baton::launcher
