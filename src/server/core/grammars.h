// The grammars of a served model: compiled where requests come in, and kept for those that ask for
// the same.
//
//   Result<ConstraintMaker> maker = model.grammars->maker(source, end_tokens);
//   request.make_constraint = maker.value();
//
// Any thread. A grammar is compiled by the first that asks, outside all locks; others wait for it.
// Kept grammars are bound in number and bytes; those not asked for longest go first. The vocabulary
// is prepared by the first request that has a grammar.
#pragma once

#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "batch/token_constraint.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

class Grammars {
 public:
  struct Limits {
    std::uint64_t max_bytes = std::uint64_t{256} << 20;
    std::size_t max_grammars = 1024;
  };
  // `vocab_size`: the width of the logits.
  Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size, Limits limits);
  Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size);

  // Constraints of `source` that end with one of `end_tokens`. `is_optional`: a compile gets less
  // time, and a constraint that can go on no further binds no longer, where others end the request.
  // `unenforced` gets what the schemas ask for and the grammar does not hold (call_grammar.h).
  // Faults: those of compile(), 400; and `no_end_token` where none of end_tokens is a token that is
  // no text.
  Result<ConstraintMaker> maker(const grammar::GrammarSource& source,
                                const std::vector<std::int32_t>& end_tokens,
                                bool is_optional = false,
                                std::vector<grammar::Unenforced>* unenforced = nullptr);

  // The captures of the texts of `source`, which is compiled each time. Faults are those of
  // grammar::compile_captures.
  Result<std::shared_ptr<const grammar::CaptureReader>> captures(
      const grammar::GrammarSource& source) {
    return grammar::compile_captures(source, *vocabulary());
  }
  std::shared_ptr<const grammar::Vocabulary> vocabulary();

 private:
  struct Made {
    std::shared_ptr<grammar::CompiledGrammar> grammar;
    std::vector<grammar::Unenforced> unenforced;
  };
  using Compiled = Result<Made>;
  struct Entry {
    std::string key;
    std::shared_future<Compiled> compiled;
  };

  void make_room();

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::int32_t vocab_size_;
  const Limits limits_;
  std::mutex vocabulary_mutex_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // guarded by vocabulary_mutex_
  std::mutex mutex_;
  std::list<Entry> entries_;                                            // the newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;  // both guarded by mutex_
};

}  // namespace sluice
