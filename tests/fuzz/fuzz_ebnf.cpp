// text/grammar/sources/ebnf.h and lark.h, the removal of left recursion and the matcher: a grammar,
// and behind a zero byte a text. A byte that is allowed leaves a way to the end, which a walk of
// allowed bytes finds or runs out of budget.
#include <memory>

#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/grammar/left_recursion.h"
#include "text/grammar/machine.h"
#include "text/grammar/sources/lark.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  grammar::Budget budget;
  budget.max_work = 200'000;
  budget.max_step_work = 50'000;
  budget.max_bytes = 8 << 20;
  grammar::Grammar grammar(budget);
  const Result<grammar::NodeId> root = grammar::parse_grammar(grammar, input.substr(0, end));
  if (!root) {
    must_hold(root.fault().status == 400 && !root.fault().message.empty(),
              "a refusal has a status and a message");
    return;
  }
  for (const grammar::Grammar::Rule& rule : grammar.rules())
    if (!rule.is_defined) return;
  if (!grammar::remove_left_recursion(grammar)) return;
  Result<grammar::Program> program = grammar::make_program(grammar, root.value());
  if (!program) return;
  grammar::Machine machine(*program, grammar.languages().store(), budget);
  grammar::StateId at = machine.begin({{}, true});
  for (const char c : text.substr(0, 256)) {
    const grammar::StateId next = machine.step(at, static_cast<unsigned char>(c), {{}, true});
    if (machine.is_exhausted()) return;
    if (next == grammar::Machine::kDead) break;
    at = next;
  }
  if (machine.can_end(at)) return;
  bool goes_on = false;
  for (int byte = 0; byte < 256 && !goes_on; ++byte) {
    goes_on =
        machine.step(at, static_cast<unsigned char>(byte), {{}, true}) != grammar::Machine::kDead;
    if (machine.is_exhausted()) return;
  }
  must_hold(goes_on, "a state that is no end has a byte that goes on");
}

std::vector<std::string> seeds() {
  const std::string zero(1, '\0');
  return {"root ::= \"a\" root \"b\" | \"ab\"" + zero + "aabb",
          "root ::= root \"+\" t | t\nt ::= [0-9]+ # sum" + zero + "1+2",
          "root ::= a\na ::= b \"x\" | \"s\"\nb ::= a \"y\" | \"t\"" + zero + "syx",
          "root ::= opt list\nopt ::= \"!\"?\nlist ::= opt list \",\" | \"i\"" + zero + "!!i,",
          "root ::= ((\"a\"?)*)* \"b\" . [^\\n\\x41-\\u00ff]{2,}" + zero + "aab",
          "root ::= x {2, 3} \"d\"?\nx ::= (\"a\" | [bc] {4,}) | \"\"" + zero + "abcbc",
          "start: \"(\" start \")\" | NAME // x\nNAME: /[a-z]+/i\n%ignore \" \"" + zero + "( a)",
          "?start: [item (\",\" item)*] -> list\nitem.2: A~2..3 | \"x\"i {1,2} | INT\n"
          "A: \"a\"..\"c\" B?\nB: \"\\x41\"\n%import common.INT\n%ignore /\\s+/" +
              zero + "aab, 12"};
}

}  // namespace sluice::fuzz
