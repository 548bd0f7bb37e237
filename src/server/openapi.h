// GET /openapi.json: what the server takes, made from the table of routes and the tables of request
// fields.
#pragma once

#include "base/json.h"
#include "server/core/server_state.h"
#include "server/http/http.h"

namespace sluice {

// An OpenAPI 3.1 document. Any thread.
Json openapi_document();

HttpReply handle_openapi(ServerState&, const HttpRequest&);

}  // namespace sluice
