// The routes of OpenAI's Responses API (docs/responses.md).
#pragma once

#include "server/api/handlers.h"

namespace sluice {

// POST /v1/responses
std::optional<Fault> handle_responses(ServerState&, const HttpRequest&,
                                      const std::shared_ptr<Responder>&);
// GET, DELETE /v1/responses/ID; GET /v1/responses/ID/input_items; POST /v1/responses/ID/cancel
std::optional<Fault> handle_stored_response(ServerState&, const HttpRequest&,
                                            const std::shared_ptr<Responder>&);

// The methods of such a path, with spaces between.
std::string_view stored_response_methods(std::string_view path);

}  // namespace sluice
