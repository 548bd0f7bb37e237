// text/grammar/sources/structural_tag.h and what it uses of schemas, patterns and grammars: a tag,
// and behind a zero byte choices of tokens. A tag is refused with a reason. Otherwise the masks
// along a text of allowed tokens agree with the matcher, and no state is without a way on.
#include <memory>

#include "base/testing/source_dir.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/grammar/constraint.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::fuzz {
namespace {

const std::shared_ptr<const grammar::Vocabulary>& vocabulary() {
  static const auto made = [] {
    const auto tokenizer = Tokenizer::load(source_dir() + "/tests/golden/tokenizers/o200k");
    return std::make_shared<const grammar::Vocabulary>(*tokenizer, tokenizer->size() + 1);
  }();
  return made;
}

}  // namespace

void run_one(std::string_view input) {
  using namespace grammar;
  if (input.size() > 20'000) return;
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view choices = input.substr(std::min(end + 1, input.size()));
  Budget budget;
  budget.max_work = 200'000;
  budget.max_step_work = 50'000;
  budget.max_bytes = 8 << 20;
  const GrammarSource source{.kind = GrammarSource::kStructuralTag,
                             .text = std::string(input.substr(0, end)),
                             .max_white_space = 4};
  const auto compiled = compile(source, vocabulary(), budget);
  if (!compiled) {
    must_hold(compiled.fault().status == 400 && !compiled.fault().code.empty() &&
                  !compiled.fault().message.empty(),
              "a refusal has a status, a code and a message");
    return;
  }
  const std::int32_t stop = vocabulary()->size() - 1;
  Constraint constraint(*compiled, {stop});
  std::vector<std::uint32_t> bits(vocabulary()->num_words());
  for (const char choice : choices.substr(0, 32)) {
    if (!constraint.fill(bits)) return;
    std::vector<std::int32_t> allowed;
    for (std::int32_t token = 0; token <= stop; ++token)
      if (has_bit(bits, token)) allowed.push_back(token);
    must_hold(!allowed.empty(), "a state that is no end has a token that goes on");
    const std::size_t at = static_cast<unsigned char>(choice) % allowed.size();
    const std::int32_t token = allowed[at];
    // and one beside it, which is not allowed
    const std::int32_t other = token == stop ? 0 : token + 1;
    const bool is_taken = constraint.accept(other);
    if (constraint.has_failed()) return;
    must_hold(is_taken == has_bit(bits, other), "mask and matcher agree");
    if (is_taken) constraint.rollback(1);
    const bool goes_on = constraint.accept(token);
    if (constraint.has_failed()) return;
    must_hold(goes_on, "a token of the mask is taken");
    if (token == stop) return;
  }
}

std::vector<std::string> seeds() {
  const std::string choices = std::string(1, '\0') + "\x01" + "a0\x7f Zq9\x05 \xf0";
  const auto tag = [&](std::string_view format) {
    return R"({"type": "structural_tag", "format": )" + std::string(format) + "}" + choices;
  };
  return {
      tag(R"({"type": "const_string", "value": "yes<|endoftext|>"})"),
      tag(R"({"type": "json_schema", "json_schema": {"type": "object", "properties":
          {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}})"),
      tag(R"({"type": "regex", "pattern": "[a-c]{2,3}"})"),
      tag(R"({"type": "grammar", "grammar": "root ::= \"(\" root \")\" | \"x\""})"),
      tag(R"({"type": "grammar", "grammar": "start: \"(\" start \")\" | /[xy]/\n%ignore \" \""})"),
      tag(R"({"type": "sequence", "elements": [{"type": "any_text", "excludes": ["<a>"]},
          {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}]})"),
      tag(R"({"type": "or", "elements": [{"type": "const_string", "value": "a"},
          {"type": "optional", "content": {"type": "regex", "pattern": "b"}}]})"),
      tag(R"({"type": "repeat", "min": 1, "max": 3, "content":
          {"type": "plus", "content": {"type": "const_string", "value": "ab"}}})"),
      tag(R"({"type": "triggered_tags", "triggers": ["<f="], "at_least_one": true, "tags":
          [{"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": true},
            "end": ["</f>", "<|end|>"]}], "stop_after_first": false})"),
      tag(R"({"type": "tags_with_separator", "separator": ", ", "at_least_one": true, "tags":
          [{"type": "tag", "begin": "[", "content": {"type": "regex", "pattern": "\\d"},
            "end": "]"}]})"),
      R"({"structures": [{"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"}],
          "triggers": ["<f"]})" +
          choices,
  };
}

}  // namespace sluice::fuzz
