// `baton proxy`.
#pragma once

namespace baton::apps {

// argv[0] is the first argument after "proxy". Returns the exit status.
int proxy_command(int argc, char** argv);

}  // namespace baton::apps
