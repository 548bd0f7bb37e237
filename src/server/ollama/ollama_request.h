// A request of Ollama's API as a chat request of OpenAI's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/api/protocol_fields.h"

namespace sluice {

struct OllamaRequest {
  Json chat = Json::object();
  FieldNames names;                  // of the chat request's fields, for its faults
  std::vector<std::string> ignored;  // fields that changed nothing
  bool is_raw = false;               // `prompt` is the whole prompt, without a template
  std::string prompt;                // of /api/generate
  bool is_load = false;              // it asks for the model alone
};

// Faults carry the path of the value in the request.
Result<OllamaRequest> read_ollama_chat(const Json& body);
Result<OllamaRequest> read_ollama_generate(const Json& body);

// A name without the tag `:latest`.
std::string ollama_model_name(std::string name);

// The fields of these requests, for /openapi.json.
std::span<const ProtocolField> ollama_chat_fields();
std::span<const ProtocolField> ollama_generate_fields();

}  // namespace sluice
