// The page at `/`: a chat and a monitor, files that are part of the program (page_files.h). The
// page asks the routes of the API for all data, so these files hold none and are open to anybody.
#pragma once

#include "server/core/server_state.h"
#include "server/http/http.h"

namespace sluice {

// 404 where the page is switched off.
std::optional<Fault> page_fault(const ServerState& state);

// `/` and `/page/NAME`. 304 where the client has the file.
HttpReply handle_page(ServerState& state, const HttpRequest& request);

// GET /page/chats: where chats are kept, and the heads of the caller's own.
std::optional<Fault> handle_chats(ServerState&, const HttpRequest&,
                                  const std::shared_ptr<Responder>&);
// GET, PUT, DELETE /page/chats/ID
std::optional<Fault> handle_chat(ServerState&, const HttpRequest&,
                                 const std::shared_ptr<Responder>&);

}  // namespace sluice
