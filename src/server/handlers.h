// The routes' handlers. Each answers exactly once.
#pragma once

#include "net/http_server.h"
#include "server/server_context.h"

namespace baton::server {

net::Task<void> handle_completions(ServerContext& context, net::HttpRequest& request, net::HttpResponder& responder);
net::Task<void> handle_chat_completions(ServerContext& context, net::HttpRequest& request,
                                        net::HttpResponder& responder);

net::HttpResponse handle_tokenize(ServerContext& context, const net::HttpRequest& request);
net::HttpResponse handle_detokenize(ServerContext& context, const net::HttpRequest& request);

net::HttpResponse handle_models(ServerContext& context);
net::HttpResponse handle_health(ServerContext& context);
net::HttpResponse handle_version(ServerContext& context);
net::HttpResponse handle_load(ServerContext& context);
net::HttpResponse handle_metrics(ServerContext& context);
net::HttpResponse handle_reset_prefix_cache(ServerContext& context);
net::HttpResponse handle_abort_requests(ServerContext& context, const net::HttpRequest& request);

net::HttpResponse json_response(const Json& body, int status = 200);

}  // namespace baton::server
