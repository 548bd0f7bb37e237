// What a row of tool_format.h can spell, told by the row's own parser.
#pragma once

#include <string>

#include "text/parsers/tool_format.h"

namespace sluice::grammar {

// Whether the parser reads `key` back among others, as keyed_arguments() spells it. Formats without
// quotes around keys have no spelling for some: marks, brackets, white space at an end.
// kTagged, kKeywords, kBraces.
bool can_spell_key(const ToolFormat& format, const std::string& key);

}  // namespace sluice::grammar
