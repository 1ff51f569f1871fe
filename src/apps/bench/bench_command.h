// `baton bench serve | latency | throughput | handoff | kernels`.
#pragma once

namespace baton::apps {

// argv[0] is the first argument after "bench". Returns the exit status.
int bench_command(int argc, char** argv);

int bench_serve_command(int argc, char** argv);
int bench_latency_command(int argc, char** argv);
int bench_throughput_command(int argc, char** argv);
int bench_handoff_command(int argc, char** argv);
int bench_kernels_command(int argc, char** argv);

}  // namespace baton::apps
