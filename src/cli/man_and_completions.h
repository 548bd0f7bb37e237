// What is written from the tables of verbs and options: shell completions and the manual page.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/arguments.h"

namespace sluice {

// A script that the shell reads once; UsageError for an unknown shell. `shell`: bash, zsh, fish.
std::string shell_completions(std::span<const Verb> verbs, std::string_view shell);

// The manual page in roff's man macros.
std::string manual_page(std::span<const Verb> verbs);

// The values of a flag where its range is a list of words ("auto, cpu"); empty otherwise.
std::vector<std::string_view> listed_values(std::string_view allowed);

}  // namespace sluice
