// A request of the Responses API as a chat request of OpenAI's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/api/protocol_fields.h"
#include "server/responses/input_items.h"

namespace sluice {

// A tool whose calls are other items than the model's words for them.
struct ResponseTool {
  std::string model_name;  // as the model knows it
  std::string name, tool_namespace;
  bool is_custom = false;
};

struct ResponsesRequest {
  Json chat = Json::object();            // without messages, which lay_out_messages adds
  FieldNames names;                      // of the chat request's fields, for its faults
  std::vector<std::string> ignored;      // fields that changed nothing
  std::string instructions;              // empty: none
  std::vector<SourcedMessage> messages;  // of `input`
  std::string previous_id;               // empty: none
  bool is_stored = true;                 // `store`
  bool may_truncate = false;             // `truncation`: auto
  bool wants_encrypted = false;          // `include`: reasoning.encrypted_content
  std::vector<ResponseTool> tools;       // custom ones and those of namespaces
  Json echo = Json::object();            // what the response repeats of the request
};

// Faults carry the path of the value in the request.
Result<ResponsesRequest> read_responses_request(const Json& body);

// The messages of the chat: instructions, `history` (of the responses before), the input. System
// messages at the beginning become one, since templates look for one alone. `num_dropped` messages
// behind them are left out.
void lay_out_messages(ResponsesRequest& request, const std::vector<Json>& history,
                      std::size_t num_dropped);

// How many messages behind the system's can be left out so that the rest begins with a user's, in
// ascending order.
std::vector<std::size_t> truncation_points(const ResponsesRequest& request,
                                           const std::vector<Json>& history);

// What responses_request.cpp shares with response_tools.cpp: tools and tool_choice.
std::optional<Fault> read_response_tools(const Json& body, ResponsesRequest& out);

// The fields of these requests, for /openapi.json.
std::span<const ProtocolField> responses_fields();

}  // namespace sluice
