// The page at `/`: a chat and a monitor, files that are part of the program (page_files.h). The
// page asks the routes of the API for all data, so these files hold none and are open to anybody.
#pragma once

#include "server/core/server_state.h"
#include "server/http/http.h"

namespace sluice {

// `/` and `/page/NAME`. 304 where the client has the file; 404 with --no-webui.
HttpReply handle_page(ServerState& state, const HttpRequest& request);

}  // namespace sluice
