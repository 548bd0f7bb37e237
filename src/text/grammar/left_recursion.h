// Grammars without left recursion.
#pragma once

#include "text/grammar/grammar.h"

namespace sluice::grammar {

// Redefines the rules that can begin with themselves before a byte is read; their languages stay
// the same. Such rules of one group, X -> Y a and X -> b, are a finite automaton read from its end:
//
//   X    = b T(X, Y)   for each Y -> b       T(X, Y) = empty, if X = Y
//                                            T(X, Y) = a T(X, Z)   for each Z -> Y a
//
// Empty texts are taken out of the group first. Source: Moore 2000, "Removing Left Recursion from
// Context-Free Grammars" (the left-corner transform). Fault `grammar_too_large` for groups of very
// many rules.
Result<Ok> remove_left_recursion(Grammar& grammar);

}  // namespace sluice::grammar
