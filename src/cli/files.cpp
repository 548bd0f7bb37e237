#include "cli/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/error.h"

namespace sluice {

std::string read_text_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::error_code unknown;
  require(!std::filesystem::is_directory(path, unknown), "cannot read {}: it is a directory", path);
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "cannot read {}: {}", path, std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  require(!in.bad(), "cannot read {}: {}", path, std::strerror(errno));
  return text;
}

void write_text_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  require(out.good(), "cannot write {}: {}", path, std::strerror(errno));
}

std::ofstream open_to_append(const std::string& path) {
  std::ofstream out(path, std::ios::binary | std::ios::app);
  require(out.is_open(), "cannot write {}: {}", path, std::strerror(errno));
  return out;
}

}  // namespace sluice
