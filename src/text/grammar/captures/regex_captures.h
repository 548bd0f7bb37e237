// A regular expression whose named groups are captures.
#pragma once

#include <string_view>

#include "text/grammar/grammar.h"

namespace sluice::grammar {

// The whole text matches `pattern`, as with Languages::regex. A grammar that keeps captures gets a
// node for each part of a pattern with named groups, in the order of a matcher with backtracking.
// Fault 400 `unsupported_captures` for such a pattern with look-around, \b, or an anchor inside.
Result<NodeId> regex_node(Grammar& grammar, std::string_view pattern);

}  // namespace sluice::grammar
