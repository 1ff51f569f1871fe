// `baton ask`: one question to a server, the answer streamed to the console, and a table of what it took.
#pragma once

namespace baton::apps {

// argv[0] is the first argument after "ask". Returns the exit status.
int ask_command(int argc, char** argv);

}  // namespace baton::apps
