// `baton quantize`.
#pragma once

namespace baton::apps {

// The process's exit status. argv: what follows the command's name.
int quantize_command(int argc, char** argv);

}  // namespace baton::apps
