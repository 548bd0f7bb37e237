#include "text/grammar/sources/grammar_source.h"

#include "text/grammar/captures/regex_captures.h"
#include "text/grammar/schema/schema.h"
#include "text/grammar/schema/unsatisfiable.h"
#include "text/grammar/sources/lark.h"
#include "text/grammar/sources/structural_tag.h"

namespace sluice::grammar {
namespace {

constexpr std::uint64_t kMaxSpaceAroundThoughts = 8;

SchemaOptions schema_options(const GrammarSource& source) {
  return {.max_space = source.max_white_space,
          .any_order = source.any_order,
          .plain_integers = source.plain_integers};
}

Result<NodeId> node_of(Grammar& grammar, const GrammarSource& source, const Vocabulary& vocabulary,
                       std::vector<Unenforced>* unenforced) {
  const NodeId space = grammar.white_space(source.max_white_space);
  switch (source.kind) {
    case GrammarSource::kNone:
      break;
    case GrammarSource::kJson:
      return source.text == "object" ? grammar.any_json_object(space) : grammar.any_json(space);
    case GrammarSource::kJsonSchema: {
      const Result<SchemaRoot> root = add_json_schema(grammar, source.text, schema_options(source));
      if (!root) return root.fault();
      if (unenforced != nullptr)
        for (const std::string& pointer : root->ignored) unenforced->push_back({"", pointer});
      return root->node;
    }
    case GrammarSource::kRegex:
      return regex_node(grammar, source.text);
    case GrammarSource::kEbnf:
      return parse_grammar(grammar, source.text);
    case GrammarSource::kChoice:
      return grammar.text(grammar.languages().literals(source.choices));
    case GrammarSource::kStructuralTag:
      return add_structural_tag(grammar, source.text, vocabulary, schema_options(source));
  }
  return Fault{400, "invalid_grammar", "", "There is no grammar."};
}

// Thoughts, if there are any, in front of `root`. Where nothing is promised, thoughts are free:
// they may hold calls, and the answer may end in them.
NodeId behind_thoughts(Grammar& grammar, const GrammarSource& source, const Vocabulary& vocabulary,
                       NodeId root) {
  root = grammar.capture(root, Grammar::CaptureKind::kAnswer);
  if (source.think_close.empty()) return root;
  const bool is_free = source.kind == GrammarSource::kNone && source.calls.is_free();
  // Newlines beside the marks belong to the format (reasoning_parser.h); other white space is text.
  const NodeId space = grammar.repeat(grammar.bytes("\n"), 0, kMaxSpaceAroundThoughts);
  NodeId close = grammar.sequence({marked_text(grammar, source.think_close, vocabulary), space});
  NodeId text{};
  if (is_free) {
    text = text_without(grammar, vocabulary, {source.think_close});
  } else {
    Languages& languages = grammar.languages();
    const LanguageId any = languages.any_text();
    text = grammar.text(
        languages.complement(languages.concat({any, languages.literal(source.think_close), any})));
  }
  if (source.is_thinking) {
    close = grammar.sequence({close, root});
    return grammar.sequence({text, is_free ? grammar.optional(close) : close});
  }
  const NodeId begin =
      grammar.sequence({space, marked_text(grammar, source.think_open, vocabulary), text});
  if (!is_free) return grammar.sequence({grammar.optional(grammar.sequence({begin, close})), root});
  return grammar.any_of(
      {root, grammar.sequence({begin, grammar.optional(grammar.sequence({close, root}))})});
}

// The answer, or calls.
Result<NodeId> answer_or_calls(Grammar& grammar, const GrammarSource& source,
                               const Vocabulary& vocabulary, std::vector<Unenforced>* unenforced) {
  std::optional<NodeId> answer;
  if (source.kind != GrammarSource::kNone) {
    const Result<NodeId> node = node_of(grammar, source, vocabulary, unenforced);
    if (!node) return node.fault();
    answer = *node;
  }
  if (!source.calls.tools.empty())
    return add_calls(grammar, source.calls, answer, vocabulary, schema_options(source), unenforced);
  if (!answer) return Fault{400, "invalid_grammar", "", "There is no grammar."};
  return source.has_channels ? in_channels(grammar, *answer, vocabulary) : *answer;
}

}  // namespace

std::string GrammarSource::key() const {
  std::string key = fmt::format("{} {} {} {} {}\n{}\n{}\n", static_cast<int>(kind), max_white_space,
                                any_order ? 1 : 0, plain_integers ? 1 : 0, is_thinking ? 1 : 0,
                                think_open, think_close);
  key += fmt::format("{} {}", has_channels ? 1 : 0, calls.key());
  for (const std::string& choice : choices) key += fmt::format("{}:{}", choice.size(), choice);
  return key + text;
}

Result<std::shared_ptr<CompiledGrammar>> compile(const GrammarSource& source,
                                                 std::shared_ptr<const Vocabulary> vocabulary,
                                                 const Budget& budget, const CompileLimits& limits,
                                                 std::vector<Unenforced>* unenforced) {
  Grammar grammar(budget);
  const Result<NodeId> root = answer_or_calls(grammar, source, *vocabulary, unenforced);
  if (!root) return root.fault();
  const NodeId whole = behind_thoughts(grammar, source, *vocabulary, root.value());
  Result<std::shared_ptr<CompiledGrammar>> compiled =
      CompiledGrammar::make(std::move(grammar), whole, std::move(vocabulary), limits);
  if (!compiled && source.kind == GrammarSource::kJsonSchema &&
      compiled.fault().code == "unsatisfiable_grammar")
    return unsatisfiable_fault(source.text, schema_options(source));
  return compiled;
}

Result<std::shared_ptr<const CaptureReader>> compile_captures(const GrammarSource& source,
                                                              const Vocabulary& vocabulary,
                                                              const Budget& budget) {
  Grammar grammar(budget);
  grammar.keep_captures();
  const Result<NodeId> root = answer_or_calls(grammar, source, vocabulary, nullptr);
  if (!root) return root.fault();
  const NodeId whole = behind_thoughts(grammar, source, vocabulary, root.value());
  return CaptureReader::make(std::move(grammar), whole);
}

}  // namespace sluice::grammar
