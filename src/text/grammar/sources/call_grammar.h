// Tool calls as a grammar: a row of tool_format.h and the tools of a request give the texts that
// the row's parser reads as calls of these tools.
//
//   CallSource calls{.format = "hermes", .tools = {{"get_weather", schema, true}}};
//   Result<NodeId> root = add_calls(grammar, calls, std::nullopt, vocabulary, options);
//
// A call is spelled as the family's template spells it, marks as special tokens where the
// vocabulary has them. Arguments obey the tool's schema. JSON has white space as `options` allows
// it. Arguments between tags, and as keywords, come in any order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/schema/schema.h"
#include "text/grammar/vocabulary.h"

namespace sluice::grammar {

struct CallTool {
  std::string name;
  std::string schema;      // of the arguments; empty: any object
  bool is_strict = false;  // a schema that cannot be enforced is a fault, not any object
};

// What a schema asks for and the grammar does not enforce.
struct Unenforced {
  std::string tool;     // empty: the answer's own schema
  std::string pointer;  // to the keyword; empty: the whole schema, so that any object may come
};

struct CallSource {
  std::string format;           // a name of tool_formats()
  std::vector<CallTool> tools;  // those that may be called
  bool is_required = false;     // at least one call comes, and no other text
  bool is_single = false;       // at most one call comes
  // Nothing is promised: any text may come, and no tool is strict.
  bool is_free() const;
  std::string key() const;  // equal keys are equal grammars
};

// `answer`: what may come instead of calls; nullopt: any text, also in front of the calls, and
// behind them where nothing is promised (CallSource::is_free) and several may come. Formats without
// marks bind such text only if a tool is strict. `unenforced`: gets keywords without effect, and
// tools whose arguments may be any object; or null. Faults: those of add_json_schema, for strict
// tools; 400 `unsupported_tool_schema`.
Result<NodeId> add_calls(Grammar& grammar, const CallSource& calls, std::optional<NodeId> answer,
                         const Vocabulary& vocabulary, const SchemaOptions& options,
                         std::vector<Unenforced>* unenforced);

// Text with any special tokens, but none of `excluded`. `bare`: characters that it does not begin
// with, white space aside.
NodeId text_without(Grammar& grammar, const Vocabulary& vocabulary,
                    const std::vector<std::string>& excluded, std::string_view bare = "");

// Whether `calls` constrain anything: a format without marks that may be any text does not.
bool constrains(const CallSource& calls);

// harmony: thoughts in channel analysis, then `answer` in channel final, or calls.
NodeId in_channels(Grammar& grammar, NodeId answer, const Vocabulary& vocabulary);

}  // namespace sluice::grammar
