// The arguments of one tool's call, in each syntax of tool_format.h.
#pragma once

#include "text/grammar/sources/call_grammar.h"
#include "text/parsers/tool_format.h"
#include "text/parsers/tool_schemas.h"

namespace sluice::grammar {

// What the arguments of a call are made with.
struct ArgumentContext {
  Grammar& grammar;
  const Vocabulary& vocabulary;
  const SchemaOptions& options;
  const ToolFormat& format;
  std::vector<Unenforced>* unenforced;  // or null
};

// JSON: an object that obeys the tool's schema. kObject, kNamed and kChannels.
Result<NodeId> json_arguments(const ArgumentContext& context, const CallTool& tool);

// Keys and values with marks between: from behind the name to the end of the last value. kTagged,
// kKeywords, kBraces.
Result<NodeId> keyed_arguments(const ArgumentContext& context, const CallTool& tool);

}  // namespace sluice::grammar
