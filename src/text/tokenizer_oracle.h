// Compares a Tokenizer with recorded reference outputs.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace sluice {

struct OracleReport {
  int cases = 0;
  int failures = 0;                   // cases with any difference
  std::vector<std::string> messages;  // what differed, at most 20 of them
};

// `oracle` is an oracle.json of kind "tokenizer.json" (tests/golden/README.md): for each text the ids without
// and with special tokens, the text they decode to, the text of every prefix, and the pieces of a streaming
// decoder. Of a stream the joined text must be equal, and no piece may hold a replacement character that the
// text does not end up with; where the pieces are cut is free. Error{kBadInput}: a file of another form or
// kind.
OracleReport check_tokenizer_oracle(const Tokenizer& tokenizer, const Json& oracle);

}  // namespace sluice
