// Reading option values: shared by the rows of options_table.cpp. Each function throws
// Error{kBadInput} that names the value; set_option() puts the option's name and what it allows
// around it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::option_parse {

// "", 1, true, yes, on: true; 0, false, no, off: false.
bool boolean(std::string_view text);
// Decimal, with an optional suffix: k m g t are powers of 1000 (a fraction may stand before
// them: 25.6k), K M G T of 1024.
std::int64_t integer(std::string_view text, std::int64_t low, std::int64_t high);
// A finite number in [low, high].
double number(std::string_view text, double low, double high);
// Finds `text` among pairs {accepted spelling, value}.
std::string choice(std::string_view text,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> values);
// A JSON array of strings, or comma-separated words; [], "none" and no text are empty.
std::vector<std::string> word_list(std::string_view text);
// Appends the comma-separated parts; an empty part is an error.
void append_list(std::vector<std::string>& out, std::string_view text);

}  // namespace sluice::option_parse
