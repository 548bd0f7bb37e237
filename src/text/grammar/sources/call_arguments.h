// The arguments of one tool's call, in each syntax of tool_format.h.
#pragma once

#include "text/grammar/sources/call_grammar.h"
#include "text/parsers/tool_format.h"
#include "text/parsers/tool_schemas.h"

namespace sluice::grammar {

// The value of a required argument.
struct ArgumentValue {
  std::string tool;
  std::string pointer;  // to its schema in the tool's
  NodeId node;
};

// What the arguments of a call are made with.
struct ArgumentContext {
  Grammar& grammar;
  const Vocabulary& vocabulary;
  const SchemaOptions& options;
  const ToolFormat& format;
  std::vector<Unenforced>* unenforced;  // or null
  std::vector<ArgumentValue>* values;   // gets those of keyed_arguments()
};

// JSON: an object that obeys the tool's schema. kObject, kNamed and kChannels.
Result<NodeId> json_arguments(const ArgumentContext& context, const CallTool& tool);

// Keys and values with marks between: from behind the name to the end of the last value. kTagged,
// kKeywords, kBraces. A name that the format cannot spell is a fault for strict tools, and is left
// out of others.
Result<NodeId> keyed_arguments(const ArgumentContext& context, const CallTool& tool);

}  // namespace sluice::grammar
