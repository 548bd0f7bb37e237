// text/grammar/captures: a pattern, a grammar or a structural tag, by the first byte, and behind a
// zero byte choices of tokens. A text of allowed tokens is divided at each token, as a beginning,
// and whole where it may end; the spans lie inside it, and a rollback leaves nothing behind.
#include <memory>

#include "base/testing/source_dir.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/grammar/captures/captures.h"
#include "text/grammar/constraint.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::fuzz {
namespace {

using namespace grammar;

const std::shared_ptr<const Vocabulary>& vocabulary() {
  static const auto made = [] {
    const auto tokenizer = Tokenizer::load(source_dir() + "/tests/golden/tokenizers/o200k");
    return std::make_shared<const Vocabulary>(*tokenizer, tokenizer->size() + 1);
  }();
  return made;
}

// Spans as one text; nothing where the steps were used up.
std::string divide(const CaptureReader& reader, const std::string& text, bool is_whole) {
  const auto found = reader.read(text, is_whole);
  if (!found) {
    must_hold(found.fault().code == "captures_too_long", "a text of the grammar is divided");
    return {};
  }
  std::string out = "found";
  for (const Capture& one : found->captures) {
    must_hold(one.begin <= one.end && one.end <= text.size(), "a capture lies in the text");
    must_hold(!reader.name(one).empty(), "a capture has a name");
    out += fmt::format(" {}:{}-{}", reader.name(one), one.begin, one.end);
  }
  return out;
}

}  // namespace

void run_one(std::string_view input) {
  if (input.empty() || input.size() > 600) return;
  constexpr GrammarSource::Kind kKinds[] = {GrammarSource::kRegex, GrammarSource::kEbnf,
                                            GrammarSource::kStructuralTag};
  const std::size_t end = std::min(input.find('\0', 1), input.size());
  const std::string_view choices = input.substr(std::min(end + 1, input.size()));
  Budget budget;
  budget.max_work = 200'000;
  budget.max_step_work = 50'000;
  budget.max_bytes = 8 << 20;
  const GrammarSource source{.kind = kKinds[static_cast<unsigned char>(input[0]) % 3],
                             .text = std::string(input.substr(1, end - 1)),
                             .max_white_space = 4};
  const auto reader = compile_captures(source, *vocabulary(), budget);
  if (!reader) {
    must_hold(reader.fault().status == 400 && !reader.fault().code.empty() &&
                  !reader.fault().message.empty(),
              "a refusal has a status, a code and a message");
    return;
  }
  const auto compiled = compile(source, vocabulary(), budget);
  if (!compiled) return;  // more work than the captures alone
  const std::int32_t stop = vocabulary()->size() - 1;
  Constraint constraint(*compiled, {stop});
  std::vector<std::uint32_t> bits(vocabulary()->num_words());
  std::string before = divide(**reader, {}, false);
  for (const char choice : choices.substr(0, 24)) {
    if (!constraint.fill(bits)) return;
    std::vector<std::int32_t> allowed;
    for (std::int32_t token = 0; token < stop; ++token)
      if (has_bit(bits, token)) allowed.push_back(token);
    if (allowed.empty()) break;
    const std::size_t at = static_cast<unsigned char>(choice) % allowed.size();
    if (!constraint.accept(allowed[at])) return;
    const std::string now = divide(**reader, constraint.text(), false);
    if (constraint.can_end()) divide(**reader, constraint.text(), true);
    constraint.rollback(1);
    must_hold(divide(**reader, constraint.text(), false) == before,
              "a rollback leaves no capture behind");
    if (!constraint.accept(allowed[at])) return;
    before = now;
  }
}

std::vector<std::string> seeds() {
  const std::string choices = std::string(1, '\0') + "\x01" + "a0\x7f Zq9\x05 \xf0";
  std::vector<std::string> all;
  const auto add = [&](char kind, const std::string& text) {
    all.push_back(std::string(1, kind) + text + choices);
  };
  for (const char* pattern :
       {"(?P<year>\\d{4})-(?<month>\\d\\d)", "(?P<a>a|ab)(?P<b>c|bcd)(?P<c>d*)",
        "(?P<a>x*?)(?P<b>x*)", "(?:(?P<x>[a-z]+?),?)*", "(?:|(?P<a>x))*y", "(?P<a>x?){3,5}y",
        "^(?i)(?P<all>(?P<in>a+)b|.)$", "(?P<a>(?:a?b?)*)(?P<b>.{0,3}?)[^a]{2,}"})
    add(0, pattern);
  add(1,
      "start: key \"=\" v (\",\" key \"=\" v)*\nkey[capture]: /[a-z]+/\nv[capture=\"n\"]: N | "
      "\"(\" start \")\"\n%import common.NUMBER -> N\n%ignore / +/");
  add(1,
      "root ::= \"<\" name \">\" | root root\nname[capture] ::= [a-z]+ | \"(\" name \")\" | \"\"");
  add(1, "start: list\nlist: list \",\" item | item\nitem[capture]: /[a-z]/?\n");
  add(2,
      R"({"format":{"type":"triggered_tags","triggers":["<f="],"tags":[{"begin":"<f=a>","content":
         {"type":"json_schema","json_schema":{"type":"object"}},"end":"</f>","capture":"a"}]}})");
  add(2, R"({"format":{"type":"sequence","elements":[{"type":"tag","begin":"<a>","content":
         {"type":"any_text"},"end":"</a>","capture":"in"},{"type":"regex","pattern":"(?P<n>\\d)+"},
         {"type":"star","content":{"type":"const_string","value":"x","capture":"x"}}]}})");
  return all;
}

}  // namespace sluice::fuzz
