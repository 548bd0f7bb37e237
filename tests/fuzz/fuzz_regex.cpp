// text/grammar/regex.h and the matcher behind it: any pattern. What compiles has an example, or is
// empty; its masks and its matcher agree, and a byte that is allowed leaves a way to the end.
#include <memory>

#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/grammar/languages.h"
#include "text/grammar/machine.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  if (input.empty()) return;
  const unsigned how = static_cast<unsigned char>(input[0]);
  grammar::Budget budget;
  budget.max_work = 200'000;
  budget.max_step_work = 100'000;
  budget.max_bytes = 8 << 20;
  grammar::Grammar grammar(budget);
  grammar::Languages& languages = grammar.languages();
  const Result<grammar::LanguageId> language = languages.regex(
      input.substr(1),
      {.match = how % 2 == 0 ? grammar::RegexMatch::kFull : grammar::RegexMatch::kSearch,
       .dialect = how % 4 < 2 ? grammar::RegexDialect::kPython : grammar::RegexDialect::kEcma});
  if (!language) {
    must_hold(language.fault().status == 400 && !language.fault().message.empty(),
              "a refusal has a status and a message");
    return;
  }
  const Result<bool> is_empty = languages.is_empty(language.value());
  const Result<std::string> example = languages.example(language.value());
  if (!is_empty || languages.is_exhausted()) return;
  must_hold(example.ok() || is_empty.value() || languages.is_exhausted(),
            "a language that is not empty has an example");
  if (!example) return;
  must_hold(!is_empty.value() && languages.contains(language.value(), example.value()),
            "the example is in the language");
  const bool is_json = how % 8 >= 4;
  const grammar::NodeId root =
      is_json ? grammar.json_text(language.value()) : grammar.text(language.value());
  Result<grammar::Program> program = grammar::make_program(grammar, root);
  if (!program) return;
  grammar::Machine machine(*program, languages.store(), budget);
  grammar::StateId at = machine.begin({{}, true});
  if (is_json) return;
  for (const char c : example.value()) {
    at = machine.step(at, static_cast<unsigned char>(c), {{}, true});
    if (machine.is_exhausted()) return;
    must_hold(at != grammar::Machine::kDead, "the machine goes along the example");
  }
  must_hold(machine.can_end(at), "the machine may end behind the example");
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const char* pattern :
       {"^[a-z0-9_-]+$", "(ab|c)*d{2,5}", "\\d{4}-\\d{2}-\\d{2}", "^(?!x).*\\bfoo\\b$",
        "[^\\\"\\\\\\x00-\\x1f]*", "\\p{Lu}+|[\\u4e00-\\u9fff]{2,4}", "(?:a?){3}(?=b)b|c$",
        "(?i)abc|(?<name>x)", "a{1000,20000}", "(a|aa){0,50}"})
    for (char how = 0; how < 8; ++how) all.push_back(std::string(1, how) + pattern);
  return all;
}

}  // namespace sluice::fuzz
