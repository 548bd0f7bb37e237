#include "text/grammar/compiled_grammar.h"

#include "text/grammar/left_recursion.h"
#include "text/grammar/masks.h"

namespace sluice::grammar {

Result<std::shared_ptr<CompiledGrammar>> CompiledGrammar::make(
    Grammar grammar, NodeId root, std::shared_ptr<const Vocabulary> vocabulary,
    const CompileLimits& limits) {
  for (const Grammar::Rule& rule : grammar.rules())
    if (!rule.is_defined)
      return Fault{
          400, "undefined_rule", "",
          fmt::format("The grammar uses the rule '{}', which it does not define.", rule.name)};
  const Result<Ok> removed = remove_left_recursion(grammar);
  if (!removed) return removed.fault();
  Result<Program> program = make_program(grammar, root);
  if (!program) return program.fault();
  return std::make_shared<CompiledGrammar>(
      std::move(*program), std::move(grammar.languages().store()), std::move(vocabulary), limits);
}

CompiledGrammar::CompiledGrammar(Program program, LanguageStore store,
                                 std::shared_ptr<const Vocabulary> vocabulary,
                                 const CompileLimits& limits)
    : program_(std::move(program)),
      store_(store.without_automata()),
      vocabulary_(std::move(vocabulary)),
      limits_(limits) {
  begin_anew(std::move(store));
}

CompiledGrammar::~CompiledGrammar() = default;

void CompiledGrammar::begin_anew(LanguageStore store) {
  masks_.reset();
  machine_ = std::make_unique<Machine>(program_, std::move(store), store_.budget());
  masks_ = std::make_unique<Masks>(*machine_, *vocabulary_, limits_.max_mask_bytes);
  ++generation_;
}

std::uint64_t CompiledGrammar::bytes() const {
  const std::lock_guard lock(mutex_);
  return program_.bytes() + store_.bytes() + machine_->bytes() + masks_->bytes();
}

CompiledGrammar::Session::Session(CompiledGrammar& grammar)
    : lock_(grammar.mutex_), grammar_(grammar) {
  const bool is_too_large =
      grammar.machine_->bytes() > grammar.limits_.max_state_bytes + grammar.store_.bytes();
  if (is_too_large || grammar.machine_->is_exhausted()) grammar.begin_anew(grammar.store_);
  grammar.machine_->restart_work();
}

}  // namespace sluice::grammar
