// The grammar of one request, token by token.
//
//   Constraint constraint(compiled, {eos_id});
//   if (!constraint.fill(bits)) ...              // the tokens that may come next
//   constraint.accept(token);                    // false: the token was not allowed
//   constraint.rollback(2);                      // as if the last two had not come
//
// One thread at a time; several constraints may share a CompiledGrammar. A copy is a fork.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/compiled_grammar.h"

namespace sluice::grammar {

class Machine;

class Constraint {
 public:
  // `stop_tokens` end the text; they are allowed where the grammar may end, and nowhere else.
  Constraint(std::shared_ptr<CompiledGrammar> grammar, std::vector<std::int32_t> stop_tokens);

  // Sets the bits [ceil(vocab / 32)] of the tokens that may come next, and clears all others.
  // False: the budget of a step ran out, and the request ends (`has_failed`).
  bool fill(std::span<std::uint32_t> bits);
  // Whether the token may come; if so the text grows by it. A stop token finishes the text.
  bool accept(std::int32_t token);
  // Takes the last `count` accepted tokens back, also a stop token.
  void rollback(std::size_t count);

  // The grammar is fulfilled: the text may end here.
  bool can_end();
  // A stop token was accepted, or nothing but the end can follow.
  bool is_finished() const { return is_stopped_; }
  // The bytes that must follow, up to max_bytes of them; empty where there is a choice.
  std::string forced(std::size_t max_bytes);
  // The bytes that probably follow, up to about max_bytes of them: one byte can come at each place,
  // but for white space and escapes. White space is as it was between the same two bytes before;
  // by default one space behind a colon or a comma, if the last key has one. It is not the last.
  // Empty where there is a choice. Never fails.
  std::string likely(std::size_t max_bytes);
  bool has_failed() const { return has_failed_; }

  std::size_t num_accepted() const { return ends_.size(); }
  const std::string& text() const { return text_; }
  bool is_stop(std::int32_t token) const;

 private:
  using StateId = std::uint32_t;  // of the machine
  struct End {                    // behind a token
    std::uint32_t text_len;
    StateId state;
    bool is_stop;
  };
  // The one byte that may come, but for white space and a backslash beside it; -1: there is a
  // choice.
  struct Next {
    int byte = -1;
    bool has_blanks = false;
  };
  static Next next_of(Machine& machine, StateId at, std::string& text);
  StateId state() const { return ends_.empty() ? begin_ : ends_.back().state; }
  // Brings the states up to date with the session's generation.
  void renew(CompiledGrammar::Session& session);

  std::shared_ptr<CompiledGrammar> grammar_;
  std::vector<std::int32_t> stop_tokens_;
  std::uint64_t generation_ = 0;
  StateId begin_ = 0;
  std::string text_;
  std::vector<End> ends_;
  bool is_stopped_ = false;
  bool has_failed_ = false;
  bool is_hard_ = false;  // likely() took a whole budget
};

}  // namespace sluice::grammar
