// Files that a person names on the command line.
#pragma once

#include <string>

namespace sluice {

// The whole file; `-` is standard input. Error{kBadInput} names the path and the reason.
std::string read_text_file(const std::string& path);
void write_text_file(const std::string& path, const std::string& text);

}  // namespace sluice
