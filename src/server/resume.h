// Requests that come back: a decode engine had no room for them, and the proxy sends them on with the tokens they have.
#pragma once

#include <span>
#include <vector>

#include "server/answer.h"

namespace baton::server {

// What `fields.kv_transfer` says of the tokens to resume, taken out of it. The prompt becomes those of them that are
// not outputs (the text that was sent may tokenise differently today, as templates with a date do); the outputs are
// returned and count in max_tokens. Nothing of all that where the request is new. An error where it can't be resumed
// so.
Parsed<std::vector<TokenId>> take_resume(CommonFields& fields, std::span<PromptInput> prompts);

}  // namespace baton::server
