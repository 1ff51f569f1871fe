// From the parsed command line (and a few environment variables) to the typed set-up of a server.
#pragma once

#include "apps/args/arg_grammar.h"
#include "apps/args/resolve_model.h"
#include "apps/serve/run_server.h"

namespace baton::apps {

// `as_vllm`: the program was called vllm, whose default is to listen on all interfaces. Errors name flag and value.
Result<ServeSetup> make_serve_setup(const ParsedArgs& parsed, bool as_vllm, const ReadEnvironment& environment);

}  // namespace baton::apps
