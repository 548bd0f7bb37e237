#include "cli/chat/grammar_flags.h"

#include "cli/files.h"

namespace sluice {
namespace {

using grammar::GrammarSource;

constexpr std::uint64_t kMaxWhiteSpace = 64;  // characters between tokens of JSON

struct GrammarFlag {
  const char* name;
  GrammarSource::Kind kind;
  bool is_file;
};
constexpr GrammarFlag kFlags[] = {
    {"json-schema", GrammarSource::kJsonSchema, false},
    {"json-schema-file", GrammarSource::kJsonSchema, true},
    {"grammar", GrammarSource::kEbnf, false},
    {"grammar-file", GrammarSource::kEbnf, true},
    {"regex", GrammarSource::kRegex, false},
};

}  // namespace

std::optional<GrammarField> grammar_of(const Arguments& arguments) {
  std::optional<GrammarField> out;
  for (const GrammarFlag& flag : kFlags) {
    if (!arguments.has(flag.name)) continue;
    if (out)
      throw UsageError(fmt::format("{} and --{} both bind the output", out->param, flag.name),
                       "give one of them");
    const std::string value = arguments.get(flag.name);
    out.emplace();
    out->param = fmt::format("--{}", flag.name);
    out->source.kind = flag.kind;
    out->source.text = flag.is_file ? read_text_file(value) : value;
    out->source.max_white_space = kMaxWhiteSpace;
    out->source.plain_integers = true;
  }
  return out;
}

}  // namespace sluice
