// `baton serve MODEL …`.
#pragma once

namespace baton::apps {

// argv[0] is the first argument after "serve". Returns the exit status: 2 for a bad command line, 1 for a failed start.
int serve_command(int argc, char** argv, bool as_vllm);

}  // namespace baton::apps
