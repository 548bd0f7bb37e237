// A language that is given by a program instead of an expression. Numbers between bounds are one: a
// few counts say what an expression needs thousands of states for.
//
// A state is a short string of bytes. Equal states go on with equal texts, so an implementation
// leaves out of a state what no longer matters. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::grammar {

class TextAutomaton {
 public:
  virtual ~TextAutomaton() = default;

  // Characters of ASCII, ascending. No text of the language has others.
  virtual std::string_view alphabet() const = 0;
  virtual std::string begin() const = 0;
  // The state behind a character of the alphabet; empty: no text of the language goes on so.
  virtual std::string step(std::string_view state, char c) const = 0;
  // Whether the text may end.
  virtual bool accepts(std::string_view state) const = 0;
  // A state from which the same texts of up to `horizon` digits go on.
  virtual std::string horizon_form(std::string_view state, std::uint64_t horizon) const = 0;
  // So many digits may follow, whichever they are, and a text goes on behind each.
  virtual std::uint64_t free_digits(std::string_view state) const = 0;
};

}  // namespace sluice::grammar
