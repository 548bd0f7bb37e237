// For tests: whether the grammar of a schema accepts a text, byte by byte.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/left_recursion.h"
#include "text/grammar/machine.h"
#include "text/grammar/program.h"
#include "text/grammar/schema/schema.h"

namespace sluice::grammar {

class SchemaAcceptor {
 public:
  // `budget`: of the compile.
  explicit SchemaAcceptor(std::string_view schema, const SchemaOptions& options = {},
                          const Budget& budget = {}) {
    Grammar grammar(budget);
    Result<SchemaRoot> root = add_json_schema(grammar, schema, options);
    if (!root) {
      fault = root.fault();
      return;
    }
    ignored = std::move(root->ignored);
    const Result<Ok> removed = remove_left_recursion(grammar);
    Result<Program> made =
        removed ? make_program(grammar, root->node) : Result<Program>(removed.fault());
    if (!made) {
      fault = made.fault();
      return;
    }
    program_ = std::make_unique<Program>(std::move(*made));
    machine_ = std::make_unique<Machine>(*program_, grammar.languages().store(), Budget{});
  }

  bool ok() const { return machine_ != nullptr; }
  bool is_exhausted() const { return machine_->is_exhausted(); }

  bool accepts(std::string_view text) {
    StateId state = begin(text);
    for (std::size_t i = 0; i < text.size() && state != Machine::kDead; ++i) {
      state = step(state, text, i);
    }
    return state != Machine::kDead && machine_->can_end(state);
  }
  // Whether the text may begin a valid one, as far as the masks know.
  bool may_begin(std::string_view text) {
    StateId state = begin(text);
    for (std::size_t i = 0; i < text.size() && state != Machine::kDead; ++i) {
      state = step(state, text, i);
    }
    return state != Machine::kDead;
  }

  Fault fault;
  std::vector<std::string> ignored;

 private:
  StateId begin(std::string_view text) {
    machine_->restart_work();
    return machine_->begin({text.substr(0, 0), true});
  }
  StateId step(StateId state, std::string_view text, std::size_t at) {
    return machine_->step(state, static_cast<unsigned char>(text[at]),
                          {text.substr(0, at + 1), true});
  }

  std::unique_ptr<Program> program_;
  std::unique_ptr<Machine> machine_;
};

}  // namespace sluice::grammar
