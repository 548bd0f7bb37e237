// Copies of a model's files have one digest; a byte, a length or another list of files changes it.
#include "checkpoint/files_digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class FilesDigest : public ::testing::Test {
 protected:
  std::string copy(const std::string& name) {
    const fs::path directory = root_ / name;
    fs::create_directories(directory);
    for (const auto& entry : fs::directory_iterator(source_dir() + "/tests/golden/models/qwen3"))
      if (entry.is_regular_file()) fs::copy(entry.path(), directory);
    return directory.string();
  }
  std::uint64_t digest(const std::string& directory) const {
    return digest_of_files(directory, LoadFormat::kAuto);
  }

  const TestFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(FilesDigest, TellsModelsApartAndNotTheirCopies) {
  const std::string one = copy("one"), other = copy("other");
  const std::uint64_t expected = digest(one);
  EXPECT_EQ(digest(other), expected);
  std::ofstream(other + "/README.md") << "what does not count";
  EXPECT_EQ(digest(other), expected);
  for (const std::string name : {"model.safetensors", "config.json"}) {
    for (const bool at_end : {false, true}) {
      const std::string changed = copy("changed");
      const auto size = static_cast<std::streamoff>(fs::file_size(changed + "/" + name));
      std::fstream file(changed + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at_end ? size - 1 : 0);
      const int byte = file.get();
      file.seekp(at_end ? size - 1 : 0);
      file.put(static_cast<char>(byte ^ 1));
      file.close();
      EXPECT_NE(digest(changed), expected) << name << at_end;
      fs::remove_all(changed);
    }
    const std::string longer = copy("longer");
    std::ofstream(longer + "/" + name, std::ios::app) << " ";
    EXPECT_NE(digest(longer), expected) << name;
    fs::remove_all(longer);
  }
}

TEST_F(FilesDigest, AFileAloneIsAGgufFile) {
  const std::string path = (root_ / "m.gguf").string();
  std::ofstream(path) << std::string(100'000, 'a');
  const std::uint64_t before = digest(path);
  std::ofstream(path) << std::string(100'001, 'a');
  EXPECT_NE(digest(path), before);
  EXPECT_THROW(digest((root_ / "none.gguf").string()), Error);
}

}  // namespace
}  // namespace sluice
