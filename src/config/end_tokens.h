// The tokens that end a generation, and the place that names each of them.
//
//   EndTokens ends(config.vocab_size);
//   ends.add_json(file["eos_token_id"], "generation_config.json: eos_token_id");
//   ends.add(151645, "tokenizer_config.json: eos_token");
//
// The set is the union of all places, as in vLLM and SGLang (safetensors) and llama.cpp (GGUF). A
// value that cannot be an id of the vocabulary never ends anything: it is noted and left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

// A token that some file names as an end.
struct EndToken {
  std::int64_t id = 0;
  std::string place;  // "tokenizer_config.json: eos_token"
};

class EndTokens {
 public:
  EndTokens() = default;
  explicit EndTokens(std::int64_t vocab_size) : vocab_size_(vocab_size) {}

  void add(std::int64_t id, const std::string& place);
  // One id or a list of them. null and -1 mean none (old files write -1).
  void add_json(const Json& value, const std::string& place);
  // A value that is no id at all; `seen` is its text.
  void ignore(std::string_view seen, const std::string& place);

  std::vector<int> ids() const;  // ascending
  // The places of each id, in the order in which they were added.
  const std::map<int, std::vector<std::string>>& places() const { return places_; }
  // One sentence for each value that was left out.
  const std::vector<std::string>& ignored() const { return ignored_; }

  bool operator==(const EndTokens&) const = default;

 private:
  std::int64_t vocab_size_ = 0;
  std::map<int, std::vector<std::string>> places_;
  std::vector<std::string> ignored_;
};

// The entries of a value that is one id or a list: integers from 0 to 2^31 - 1, ascending and
// without repeats. Others are left out, because EndTokens notes them.
std::vector<int> usable_ids(const Json& value);

}  // namespace sluice
