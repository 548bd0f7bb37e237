// A grammar as requests name it, and how each kind becomes a CompiledGrammar.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/grammar/captures/captures.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/sources/call_grammar.h"

namespace sluice::grammar {

struct GrammarSource {
  enum Kind : std::uint8_t {
    kNone,           // any text
    kJson,           // any JSON value; `text` is "object" for an object alone
    kJsonSchema,     // `text`: the schema
    kRegex,          // `text`: the pattern, which matches the whole answer
    kEbnf,           // `text`: GBNF with a rule `root`, or Lark (lark.h)
    kChoice,         // one of `choices`
    kStructuralTag,  // `text`: the tag as JSON
  };
  Kind kind = kNone;
  std::string text{};
  std::vector<std::string> choices{};
  // Characters of white space between the tokens of JSON; 0: none.
  std::uint64_t max_white_space = 0;
  bool any_order = false;       // members of objects come in any order
  bool plain_integers = false;  // an integer is written without fraction and exponent
  // Tool calls that may come instead of the answer, or must. Empty tools: there are none.
  CallSource calls{};
  bool has_channels = false;  // the answer comes in messages of harmony
  // Marks around the thoughts that may come first; empty: none may. What is between them is free,
  // and the grammar begins behind them.
  std::string think_open{}, think_close{};
  bool is_thinking = false;  // the prompt has opened the thoughts

  // Equal keys are equal grammars.
  std::string key() const;
};

// `unenforced` as in add_calls, or null.
// Builds and compiles; slow (milliseconds), any thread. Faults: those of the front ends, 400.
Result<std::shared_ptr<CompiledGrammar>> compile(const GrammarSource& source,
                                                 std::shared_ptr<const Vocabulary> vocabulary,
                                                 const Budget& budget = {},
                                                 const CompileLimits& limits = {},
                                                 std::vector<Unenforced>* unenforced = nullptr);

// The captures of the same texts. Faults: those of compile(), and of CaptureReader::make.
Result<std::shared_ptr<const CaptureReader>> compile_captures(const GrammarSource& source,
                                                              const Vocabulary& vocabulary,
                                                              const Budget& budget = {});

}  // namespace sluice::grammar
