// `baton launch`.
#pragma once

namespace baton::apps {

// The exit code. `argv` without the program's and the subcommand's name.
int launch_command(int argc, char** argv);

}  // namespace baton::apps
