// Common parts of the fuzz targets: fixtures of the repository as seeds, and a property check.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::fuzz {

// The text of tests/golden/`path`; ends the program if it is missing.
std::string golden_text(const std::string& path);
// golden_text of `folder`/X/`file` for every X that has it, by name; files above `max_bytes` are
// skipped.
std::vector<std::string> golden_texts(const std::string& folder, const std::string& file,
                                      std::size_t max_bytes);

// Prints `what` and aborts unless `holds`.
void must_hold(bool holds, std::string_view what);

}  // namespace sluice::fuzz
