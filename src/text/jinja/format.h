// What both ways to format text share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::jinja {

inline constexpr int kMaxWidth = 100'000;

// A width or precision; raises a ValueError beyond kMaxWidth.
int bounded_width(std::int64_t width);

// ascii(): the code points of a repr beyond ASCII become escapes.
std::string ascii_only(std::string_view repr);

}  // namespace sluice::jinja
