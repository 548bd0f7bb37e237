// Colours of messages: only where a person reads them in a terminal, and not with NO_COLOR
// (no-color.org).
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace sluice {

// Whether what goes to `descriptor` may be coloured: a terminal, no NO_COLOR, and not TERM=dumb.
bool may_colour(int descriptor);

enum class Colour { kRed, kCyan, kBold };

// `text` in a colour where `out` is a terminal that shows colours; else as it is.
std::string coloured(std::FILE* out, Colour colour, std::string_view text);

}  // namespace sluice
