// Compares a Tokenizer with recorded reference outputs.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

struct OracleReport {
  int cases = 0;
  int failures = 0;                   // number of cases with any difference
  std::vector<std::string> messages;  // the differences of at most 20 cases
};

// `oracle` is an oracle.json (tests/golden/README.md). Checks of every kind, for each text: the
// ids, the text they decode to, the text of every prefix, and our own stream. The concatenated
// stream must be equal, and no text may be revoked. Further checks by kind:
// - "tokenizer.json": the ids with special tokens, the text without them, and the reference's
// stream;
// - "sentencepiece": special tokens in the text are text; the pieces of each id;
// - "tiktoken": as "sentencepiece"; also the ids with special tokens recognised, and the bytes;
// - "tekken": the ids with the first token in front, the bytes, and the ids of the special tokens.
//
// Error{kBadInput}: a file of another form or kind.
OracleReport check_tokenizer_oracle(const Tokenizer& tokenizer, const Json& oracle);

}  // namespace sluice
