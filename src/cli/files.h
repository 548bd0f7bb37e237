// Files that a person names on the command line.
#pragma once

#include <fstream>
#include <string>

namespace sluice {

// The whole file; `-` is standard input. Error{kBadInput} names the path and the reason.
std::string read_text_file(const std::string& path);
void write_text_file(const std::string& path, const std::string& text);
// What is written comes after what the file holds.
std::ofstream open_to_append(const std::string& path);

}  // namespace sluice
