// The routes of Ollama's API (docs/ollama.md).
#pragma once

#include "server/api/handlers.h"

namespace sluice {

// POST /api/chat, /api/generate, /api/show
std::optional<Fault> handle_ollama_chat(ServerState&, const HttpRequest&,
                                        const std::shared_ptr<Responder>&);
std::optional<Fault> handle_ollama_generate(ServerState&, const HttpRequest&,
                                            const std::shared_ptr<Responder>&);
std::optional<Fault> handle_ollama_show(ServerState&, const HttpRequest&,
                                        const std::shared_ptr<Responder>&);
// GET /api/tags, /api/ps, /api/version
HttpReply handle_ollama_tags(ServerState&, const HttpRequest&);
HttpReply handle_ollama_ps(ServerState&, const HttpRequest&);
HttpReply handle_ollama_version(ServerState&, const HttpRequest&);

}  // namespace sluice
