// Tools of the Messages API: those of `tools`, and how messages change what the model is offered.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "server/anthropic/messages_request.h"

namespace sluice {

// The type of a block, which must be an object.
Result<std::string> block_type(const Json& block, const std::string& path);
// A string that a block must have.
Result<std::string> block_string(const Json& block, const char* key, const std::string& path);

// A block `tool_addition` or `tool_removal` of a system message.
std::optional<Fault> read_tool_change(const Json& block, const std::string& type,
                                      const std::string& path, MessagesRequest& out);
// A block `tool_reference` of a tool's result: from there on the tool is offered. The text stands
// in its place.
Result<std::string> read_tool_reference(const Json& block, const std::string& path,
                                        MessagesRequest& out);

}  // namespace sluice
