// Fills a GgufFile from its header. Private to checkpoint/gguf/.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"

namespace sluice {

class GgufParser {
 public:
  GgufParser(GgufFile& file, const GgufLimits& limits);
  void parse();

 private:
  struct Text {
    std::uint64_t at = 0;
    std::uint64_t length = 0;
  };
  struct Entry {
    Text key;
    GgufFile::Value value;
  };

  // Reads until the next `bytes` bytes are in memory; `what` names the current item.
  void need(std::uint64_t bytes, std::string_view what);
  template <class T>
  T take(std::string_view what);
  Text take_text(std::string_view what, std::uint64_t max_bytes);
  std::string_view view(Text text) const;
  void skip_strings(std::uint64_t count, std::string_view what);
  void skip_elements(std::uint32_t type, std::uint64_t count, std::string_view what);
  void read_value(std::uint64_t index);
  void index_values();
  std::uint64_t read_tensor(std::uint64_t index);  // returns the offset that the file states
  void place_tensors(const std::vector<std::uint64_t>& offsets);

  GgufFile& file_;
  const GgufLimits& limits_;
  const std::uint64_t size_;  // size of the file
  std::uint64_t at_ = 0;      // how far the header is read
  std::vector<Entry> entries_;
};

}  // namespace sluice
