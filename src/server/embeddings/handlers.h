// The routes of vectors and scores (docs/embeddings.md).
#pragma once

#include <span>

#include "server/api/handlers.h"
#include "server/api/protocol_fields.h"

namespace sluice {

// POST /v1/embeddings: OpenAI's.
std::optional<Fault> handle_embeddings(ServerState&, const HttpRequest&,
                                       const std::shared_ptr<Responder>&);
// POST /pooling: vLLM's.
std::optional<Fault> handle_pooling(ServerState&, const HttpRequest&,
                                    const std::shared_ptr<Responder>&);
// POST /api/embed and /api/embeddings: Ollama's.
std::optional<Fault> handle_ollama_embed(ServerState&, const HttpRequest&,
                                         const std::shared_ptr<Responder>&);
std::optional<Fault> handle_ollama_embeddings(ServerState&, const HttpRequest&,
                                              const std::shared_ptr<Responder>&);

// POST /v1/rerank, /v2/rerank and /rerank: Jina's and Cohere's, as vLLM has them.
std::optional<Fault> handle_rerank(ServerState&, const HttpRequest&,
                                   const std::shared_ptr<Responder>&);
// POST /v1/score and /score: vLLM's.
std::optional<Fault> handle_score(ServerState&, const HttpRequest&,
                                  const std::shared_ptr<Responder>&);
// POST /classify: vLLM's.
std::optional<Fault> handle_classify(ServerState&, const HttpRequest&,
                                     const std::shared_ptr<Responder>&);

// The fields of these requests, for /openapi.json.
std::span<const ProtocolField> embeddings_fields();
std::span<const ProtocolField> rerank_fields();
std::span<const ProtocolField> score_fields();
std::span<const ProtocolField> classify_fields();
std::span<const ProtocolField> ollama_embed_fields();
std::span<const ProtocolField> ollama_embeddings_fields();

}  // namespace sluice
