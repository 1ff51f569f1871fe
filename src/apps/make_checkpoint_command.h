// `baton make-checkpoint`.
#pragma once

namespace baton::apps {

// The process's exit status. argv: what follows the command's name.
int make_checkpoint_command(int argc, char** argv);

}  // namespace baton::apps
