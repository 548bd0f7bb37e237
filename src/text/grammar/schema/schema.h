// JSON Schema: from a schema's text to a grammar of exactly the JSON texts that are valid.
//
//   Grammar grammar;
//   Result<SchemaRoot> root = add_json_schema(grammar, R"({"type": "integer", "minimum": 3})");
//   if (!root) return root.fault();   // 400; the message names the keyword by its JSON pointer
//   compile(std::move(grammar), root->node);
//
// Drafts 4, 6, 7, 2019-09 and 2020-12. docs/structured_output/json_schema.md has the table of
// keywords. A schema is accepted only if every keyword of it is enforced; keywords that constrain
// nothing are listed in `ignored`. Any thread; nothing recurses on the schema.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/grammar/grammar.h"

namespace sluice::grammar {

struct SchemaOptions {
  // White space between tokens, in characters; 0: none at all.
  std::uint64_t max_space = 64;
  // false: members come in the schema's order where it has one, other keys behind them.
  bool any_order = false;
  bool assert_formats = true;
  // Integers have neither fraction nor exponent, as clients with typed integers need them.
  bool plain_integers = false;
  // The value is an object, as the arguments of a call are, if the schema allows one.
  bool only_objects = false;
  // Set: a value that is a string as a whole stands without quotes and escapes, and is a text of
  // this language, too. Strings inside the value are JSON.
  std::optional<LanguageId> raw_string = std::nullopt;
};

struct SchemaRoot {
  NodeId node{};
  std::vector<std::string> ignored;  // JSON pointers of keywords without effect
};

// Faults: 400 with code invalid_json_schema, unsupported_json_schema, unsatisfiable_json_schema,
// json_schema_too_large, or a code of ExactJson::parse.
Result<SchemaRoot> add_json_schema(Grammar& grammar, std::string_view schema,
                                   const SchemaOptions& options = {});

}  // namespace sluice::grammar
