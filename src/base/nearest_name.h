// What a misspelt name may have meant. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace sluice {

// Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Of `known`, the name nearest to `name`, with at most a third of the letters wrong; empty: none
// is. A name of more than 64 bytes has no neighbour.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace sluice
