// The handlers of the route table, by protocol. Those on text threads get requests whose body is
// complete and answer through the responder; the plain ones return their reply on the I/O thread.
#pragma once

#include <memory>

#include "base/error.h"
#include "server/core/server_state.h"
#include "server/http/http.h"

namespace sluice {

// Text threads; a fault is answered by the caller.
using TextHandler = std::optional<Fault> (*)(ServerState&, const HttpRequest&,
                                             const std::shared_ptr<Responder>&);
// I/O thread; must be quick.
using PlainHandler = HttpReply (*)(ServerState&, const HttpRequest&);

std::optional<Fault> handle_chat_completions(ServerState&, const HttpRequest&,
                                             const std::shared_ptr<Responder>&);
std::optional<Fault> handle_completions(ServerState&, const HttpRequest&,
                                        const std::shared_ptr<Responder>&);
std::optional<Fault> handle_generate(ServerState&, const HttpRequest&,
                                     const std::shared_ptr<Responder>&);
std::optional<Fault> handle_health_generate(ServerState&, const HttpRequest&,
                                            const std::shared_ptr<Responder>&);
std::optional<Fault> handle_tokenize(ServerState&, const HttpRequest&,
                                     const std::shared_ptr<Responder>&);
std::optional<Fault> handle_detokenize(ServerState&, const HttpRequest&,
                                       const std::shared_ptr<Responder>&);
std::optional<Fault> handle_abort_request(ServerState&, const HttpRequest&,
                                          const std::shared_ptr<Responder>&);
// POST /page/cache
std::optional<Fault> handle_cache_explainer(ServerState&, const HttpRequest&,
                                            const std::shared_ptr<Responder>&);

HttpReply handle_models(ServerState&, const HttpRequest&);
HttpReply handle_model(ServerState&, const HttpRequest&);
HttpReply handle_model_info(ServerState&, const HttpRequest&);
HttpReply handle_server_info(ServerState&, const HttpRequest&);
HttpReply handle_tokenizer_info(ServerState&, const HttpRequest&);
HttpReply handle_flush_cache(ServerState&, const HttpRequest&);
HttpReply handle_health(ServerState&, const HttpRequest&);
HttpReply handle_ready(ServerState&, const HttpRequest&);
HttpReply handle_version(ServerState&, const HttpRequest&);
HttpReply handle_metrics(ServerState&, const HttpRequest&);

}  // namespace sluice
