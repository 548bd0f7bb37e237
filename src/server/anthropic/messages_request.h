// A request of Anthropic's Messages API as a chat request of OpenAI's.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/api/protocol_fields.h"

namespace sluice {

// What a message changes about the tools: one is offered from there on, or no longer.
struct ToolChange {
  std::string name;  // of a tool of `tools`
  Json definition;   // of another one; null: by name
  std::string path;
  bool is_offered = true;
};

struct MessagesRequest {
  Json chat = Json::object();
  FieldNames names;                      // of the chat request's fields, for its faults
  std::vector<std::string> ignored;      // fields that changed nothing
  std::vector<ToolChange> tool_changes;  // in the messages' order
  bool has_edits = false;                // asks for edits of the context, of which none changes it
};

// `is_counting`: of count_tokens, which needs no max_tokens. Faults carry the path of the value in
// the request.
Result<MessagesRequest> read_messages_request(const Json& body, bool is_counting);

// What messages_request.cpp shares with message_blocks.cpp and message_tools.cpp.

// Appends `messages` and `system` to the chat's messages.
std::optional<Fault> read_anthropic_messages(const Json& body, MessagesRequest& out);
// tools and tool_choice, after the messages, which may change what is offered.
std::optional<Fault> read_anthropic_tools(const Json& body, MessagesRequest& out);

// The fields of these requests, for /openapi.json.
std::span<const ProtocolField> messages_fields();

}  // namespace sluice
