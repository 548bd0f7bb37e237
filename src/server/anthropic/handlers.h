// The routes of Anthropic's Messages API (docs/anthropic.md).
#pragma once

#include "server/api/handlers.h"

namespace sluice {

// POST /v1/messages
std::optional<Fault> handle_messages(ServerState&, const HttpRequest&,
                                     const std::shared_ptr<Responder>&);
// POST /v1/messages/count_tokens
std::optional<Fault> handle_count_tokens(ServerState&, const HttpRequest&,
                                         const std::shared_ptr<Responder>&);

}  // namespace sluice
