// What an engine's answer means to a proxy, and the proxy's own words where no engine has any. Pure. Inner header of
// proxy.
#pragma once

#include "net/http.h"
#include "proxy/instances.h"
#include "proxy/request_plan.h"

namespace baton::proxy {

Outcome outcome_of(const Status& status);
int client_status_of(const Status& status);

// About the request itself: every other instance would say the same, and none is the worse for it.
bool is_about_the_request(int status);
// Another instance may have room; too busy is not sick. Baton's own engines say 429 when they are busy: their 503 says
// that they have stopped.
bool is_busy(const net::HttpResponse& answer, bool baton);

// The status inside {"error": {"code": ...}}, or 0.
int error_code(const Json& body);
// Null for what isn't JSON. An engine may say much (logprobs of a long prompt): the client bounds its answers' bytes.
Json parse_answer(std::string_view text);
// Of a prefill engine's answer what a proxy needs: usage, and baton_offer_id and baton_seed of its kv_transfer_params,
// whose text becomes `kv_params` (empty: there are none). An error is there whole.
Json parse_prefill_answer(std::string_view text, std::string& kv_params);
// That there is something in it: a choice.
bool has_choice(const Json& answer);
// Of the chunk's first choice, when it has ended.
bool has_finish_reason(const Json& chunk);
// Baton's word for a request that its engine has let go, as when it shuts down: the answer is not whole.
bool is_aborted(const Json& answer);

net::HttpResponse json_answer(int status, std::string body);
std::string type_of(int status);
net::HttpResponse error_response(int status, std::string_view message);

}  // namespace baton::proxy
