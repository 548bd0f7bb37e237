#include "cli/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/error.h"

namespace sluice {

std::string read_text_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
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

}  // namespace sluice
