// Which names a block sets, without a value until then.
//
// jinja2 decides when it compiles where a name lives: a name that a block (a loop's body, a macro,
// the whole template) sets, and does not read before, belongs to that block from its start. A loop
// or macro in it that reads the name earlier finds it undefined, though the context has a value.
// The rules are those of the module idtracking of jinja2.
#pragma once

#include "text/jinja/ast.h"

namespace sluice::jinja {

// Fills `unset` of the program, of its statements and macros.
void find_unset_names(Program& program);

}  // namespace sluice::jinja
