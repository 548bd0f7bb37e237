#include "text/grammar/sources/grammar_source.h"

#include "text/grammar/ebnf.h"
#include "text/grammar/schema/schema.h"

namespace sluice::grammar {
namespace {

Result<NodeId> node_of(Grammar& grammar, const GrammarSource& source) {
  const NodeId space = grammar.white_space(source.max_white_space);
  switch (source.kind) {
    case GrammarSource::kNone:
      break;
    case GrammarSource::kJson:
      return source.text == "object" ? grammar.any_json_object(space) : grammar.any_json(space);
    case GrammarSource::kJsonSchema: {
      const Result<SchemaRoot> root = add_json_schema(
          grammar, source.text,
          {.max_space = source.max_white_space, .any_order = source.any_order});
      if (!root) return root.fault();
      return root->node;
    }
    case GrammarSource::kRegex: {
      const Result<LanguageId> language = grammar.languages().regex(source.text);
      if (!language) return language.fault();
      return grammar.text(language.value());
    }
    case GrammarSource::kEbnf:
      return parse_ebnf(grammar, source.text);
    case GrammarSource::kChoice:
      return grammar.text(grammar.languages().literals(source.choices));
    case GrammarSource::kStructuralTag:
      return Fault{400, "unsupported_structural_tag", "", "Structural tags are absent."};
  }
  return Fault{400, "invalid_grammar", "", "There is no grammar."};
}

}  // namespace

std::string GrammarSource::key() const {
  std::string key =
      fmt::format("{} {} {}\n", static_cast<int>(kind), max_white_space, any_order ? 1 : 0);
  for (const std::string& choice : choices) key += fmt::format("{}:{}", choice.size(), choice);
  return key + text;
}

Result<std::shared_ptr<CompiledGrammar>> compile(const GrammarSource& source,
                                                 std::shared_ptr<const Vocabulary> vocabulary,
                                                 const Budget& budget,
                                                 const CompileLimits& limits) {
  Grammar grammar(budget);
  const Result<NodeId> root = node_of(grammar, source);
  if (!root) return root.fault();
  return CompiledGrammar::make(std::move(grammar), root.value(), std::move(vocabulary), limits);
}

}  // namespace sluice::grammar
