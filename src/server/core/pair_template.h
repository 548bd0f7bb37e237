// How a tokenizer joins two texts: the post-processor of its tokenizer.json. Immutable after load.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

struct PairTemplate {
  struct Piece {
    int text = -1;                  // 0 or 1: the first or the second; -1: `ids`
    std::vector<std::int32_t> ids;  // special tokens
    std::uint8_t type = 0;          // token type
  };
  std::vector<Piece> pieces;

  // Tokens beside those of the texts.
  std::size_t num_special() const;
  // The joined tokens and their types.
  void join(const std::vector<std::int32_t>& first, const std::vector<std::int32_t>& second,
            std::vector<std::int32_t>& ids, std::vector<std::uint8_t>& types) const;

  // Of the `post_processor` of a tokenizer.json; null: the texts follow each other.
  // Error{kBadInput} for a kind that is not known.
  static PairTemplate of(const Json& post_processor);
  // Of the tokenizer in `directory`. Error{kBadInput}: no tokenizer.json.
  static PairTemplate load(const std::string& directory);
};

// Takes tokens from the end of the longer text until both have `most` at most.
void cut_longest_first(std::size_t most, std::vector<std::int32_t>& first,
                       std::vector<std::int32_t>& second);

}  // namespace sluice
