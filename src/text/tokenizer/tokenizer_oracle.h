// Compares a Tokenizer with recorded reference outputs.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

struct OracleReport {
  int cases = 0;
  int failures = 0;                   // cases with any difference
  std::vector<std::string> messages;  // what differed, at most 20 of them
};

// `oracle` is an oracle.json (tests/golden/README.md). Of every kind: for each text the ids, the
// text they decode to, the text of every prefix, and our own stream, whose joined text must be
// equal and of which nothing may be taken back. "tokenizer.json": also the ids with special tokens,
// the text without them, and the reference's stream. "sentencepiece": special tokens in the text
// are text; the pieces of each id. "tiktoken": the same; also the ids with special tokens
// recognised, and the bytes. "tekken": the ids with the first token in front, the bytes, and the
// ids of the special tokens. Error{kBadInput}: a file of another form or kind.
OracleReport check_tokenizer_oracle(const Tokenizer& tokenizer, const Json& oracle);

}  // namespace sluice
