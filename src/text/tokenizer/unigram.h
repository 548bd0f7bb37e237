// The unigram language model: among all segmentations of a text into tokens, the one with the
// greatest sum of scores. Source: Kudo 2018, "Subword regularization", section 3; sentencepiece
// `unigram_model.cc` (EncodeOptimized); tokenizers `models/unigram/model.rs`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/token_trie.h"

namespace sluice {

struct UnigramPiece {
  std::int32_t id = 0;
  double score = 0;           // a logarithm of a probability
  bool usable = true;         // false: only the text of the id, never found in a text
  bool user_defined = false;  // always found, whatever its score
  bool normal = true;         // counts for the minimum score
};

struct UnigramOptions {
  std::optional<std::int32_t> unk_id;  // none: unknown characters without byte tokens are dropped
  bool byte_fallback = false;
  bool single_precision = false;  // sums in float32, as SentencePiece does; else in float64
};

// Immutable; any thread.
class UnigramModel {
 public:
  // `vocab` outlives the model and holds the text of every piece. Error{kBadInput}: a score that is
  // not finite, an unk_id that is no token, no piece at all.
  UnigramModel(const TokenTable& vocab, const std::vector<UnigramPiece>& pieces,
               UnigramOptions options, std::string_view what);

  // Working memory of one thread.
  struct Scratch {
    struct Node {
      double score;
      std::int32_t id;
      std::int32_t begin;  // -1: no token ends here
    };
    std::vector<Node> nodes;  // by position in bytes: the best token that ends there
    std::vector<std::pair<std::int32_t, std::int32_t>> path;
    std::uint64_t steps = 0;  // steps in the trie, for tests of the running time
  };

  // Appends the ids of valid UTF-8. O(n * longest token). A run of unknown characters becomes one
  // unk, or its bytes.
  void encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  template <class Real>
  void search(std::string_view piece, Scratch& scratch) const;
  void write_unknown(std::string_view run, std::vector<std::int32_t>& ids) const;

  const TokenTable& vocab_;
  UnigramOptions options_;
  TokenTrie trie_;
  std::vector<double> scores_;  // by id
  std::vector<char> user_defined_;
  double min_score_ = 0, greatest_score_ = 0;
  std::array<std::int32_t, 256> byte_tokens_{};
};

}  // namespace sluice
