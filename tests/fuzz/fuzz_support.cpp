#include "fuzz_support.h"
#include "base/testing/source_dir.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace sluice::fuzz {

std::string golden_text(const std::string& path) {
  const std::string full = source_dir() + "/tests/golden/" + path;
  std::ifstream file(full, std::ios::binary);
  must_hold(file.good(), full + " cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> golden_texts(const std::string& folder, const std::string& file,
                                      std::size_t max_bytes) {
  std::vector<std::string> paths;
  const std::filesystem::path root = source_dir() + "/tests/golden";
  for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
    const std::filesystem::path path = entry.path() / file;
    if (std::filesystem::exists(path) && std::filesystem::file_size(path) <= max_bytes)
      paths.push_back(std::filesystem::relative(path, root).string());
  }
  std::ranges::sort(paths);
  std::vector<std::string> texts;
  for (const std::string& path : paths) texts.push_back(golden_text(path));
  return texts;
}

void must_hold(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "error: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace sluice::fuzz
