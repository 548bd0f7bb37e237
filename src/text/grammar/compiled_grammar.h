// A grammar that is ready for use with one vocabulary, and shared by all requests that ask for it.
//
//   Grammar grammar(budget);
//   const NodeId root = ...;
//   Result<std::shared_ptr<CompiledGrammar>> compiled =
//       CompiledGrammar::make(std::move(grammar), root, vocabulary);
//   Constraint constraint(*compiled);                                     // constraint.h
//
// What is made at once is small: a program (program.h). States, transitions and masks appear as
// texts need them, under a mutex, within `max_bytes`: where they are more, all are forgotten and
// made anew. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "text/grammar/grammar.h"
#include "text/grammar/program.h"
#include "text/grammar/vocabulary.h"

namespace sluice::grammar {

class Machine;
class Masks;

struct CompileLimits {
  // of states and transitions, and of masks, of one grammar
  std::uint64_t max_state_bytes = 16 << 20;
  std::uint64_t max_mask_bytes = 4 << 20;
};

class CompiledGrammar {
 public:
  // Faults: 400 with `unsatisfiable_grammar`, `grammar_too_large` or `undefined_rule`.
  static Result<std::shared_ptr<CompiledGrammar>> make(Grammar grammar, NodeId root,
                                                       std::shared_ptr<const Vocabulary> vocabulary,
                                                       const CompileLimits& limits = {});

  CompiledGrammar(Program program, LanguageStore store,
                  std::shared_ptr<const Vocabulary> vocabulary, const CompileLimits& limits);
  ~CompiledGrammar();

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  std::uint64_t bytes() const;

  // For Constraint. While a session lives nobody else uses the machine.
  class Session {
   public:
    explicit Session(CompiledGrammar& grammar);
    Machine& machine() { return *grammar_.machine_; }
    Masks& masks() { return *grammar_.masks_; }
    // Grows when states were forgotten: ids of states of an older generation mean nothing.
    std::uint64_t generation() const { return grammar_.generation_; }

   private:
    std::lock_guard<std::mutex> lock_;
    CompiledGrammar& grammar_;
  };

 private:
  // Forgets all states and masks.
  void begin_anew(LanguageStore store);

  const Program program_;
  const LanguageStore store_;  // as it was compiled, without automata
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const CompileLimits limits_;

  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Masks> masks_;
  std::uint64_t generation_ = 0;
};

}  // namespace sluice::grammar
