// Which parts of a text the named parts of its grammar are.
//
//   grammar.keep_captures();                            // before the grammar is built
//   const NodeId root = ... grammar.capture(node, Grammar::CaptureKind::kNamed, "year") ...;
//   Result<std::shared_ptr<const CaptureReader>> reader =
//       CaptureReader::make(std::move(grammar), root);
//   for (const Capture& one : reader->read("In 2026.", true)->captures) ...   // {0, 3, 7}
//
// Masks know nothing of it: the text is divided when its captures are wanted, so a token that is
// taken back leaves nothing behind. Of several ways to divide it, the one counts that a matcher
// with backtracking finds first: alternatives in their order, repetitions as long as can be (lazy
// ones as short), and parts without captures as long as can be. Such a way is walked place by
// place; the machine (machine.h) says which choices lead to the end of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/constraint.h"
#include "text/grammar/grammar.h"
#include "text/grammar/language_store.h"
#include "text/grammar/program.h"

namespace sluice::grammar {

// The bytes [begin, end) of a text.
struct Capture {
  std::uint32_t name = 0;  // of CaptureReader::names()
  std::size_t begin = 0, end = 0;
};

class CaptureReader {
 public:
  struct Found {
    std::vector<Capture> captures;  // in the order of their ends; a repeated part comes repeatedly
    std::size_t answer_begin = 0;   // behind the thoughts (Grammar::CaptureKind::kAnswer)
  };

  // Faults: 400 `no_captures` where no part has a name, `unsupported_captures` where a captured
  // part begins with itself, and those of CompiledGrammar::make.
  static Result<std::shared_ptr<const CaptureReader>> make(Grammar grammar, NodeId root);
  CaptureReader(Program program, LanguageStore store, std::vector<Grammar::Capture> captures)
      : program_(std::move(program)), store_(std::move(store)), captures_(std::move(captures)) {}

  // `text` is one of the grammar, or the beginning of one if not `is_whole`: then captures are
  // found whose ends are certain. Faults: `not_of_the_grammar` where it is no such text, and
  // `captures_too_long` where it takes too many steps, about a tenth of a second.
  Result<Found> read(std::string_view text, bool is_whole) const;
  // Of what the constraint has accepted; it is of the same grammar.
  Result<Found> read(const Constraint& constraint) const {
    return read(constraint.text(), constraint.is_finished());
  }
  const std::string& name(const Capture& capture) const { return captures_[capture.name].name; }

  std::uint64_t bytes() const { return program_.bytes() + store_.bytes(); }

 private:
  const Program program_;
  const LanguageStore store_;
  const std::vector<Grammar::Capture> captures_;
};

}  // namespace sluice::grammar
