// The types that the tools of a request state for their arguments.
//
//   ToolSchemas schemas(request_tools);
//   schemas.typed_value("get_weather", "days", "3")   // 3, or "\"3\"" where a string is stated
//
// Local references, and schemas that others join, are followed eight levels deep. Python's names of
// types are read, too. Immutable after construction.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

class ToolSchemas {
 public:
  ToolSchemas() = default;
  // `tools` are OpenAI's, or null.
  explicit ToolSchemas(const Json& tools);

  bool has_tool(const std::string& name) const { return types_.count(name) == 1; }
  using Types = std::vector<std::string>;  // empty: not stated
  // Null where the schema states no types.
  const Types* types_of(const std::string& tool, const std::string& argument) const;
  // The argument can only be a string.
  bool is_string(const std::string& tool, const std::string& argument) const;
  // The JSON text of a value that is written without quotes. A value that parses as a stated type
  // has that type; text that is no literal is a string.
  std::string typed_value(const std::string& tool, const std::string& argument,
                          std::string_view text) const;

 private:
  struct Tool {
    std::map<std::string, Types> properties;
    Types others;  // of properties without a name in the schema
  };
  std::map<std::string, Tool> types_;  // by name
};

// What the `$ref` of `schema` names in the document `root`: a local JSON pointer (RFC 6901), with
// percent-encoding or without. Null: nothing.
const Json* schema_named(const Json& schema, const Json& root);

// The JSON text of a literal of JSON or Python; any other text is a string.
std::string literal_or_string(std::string_view text);

}  // namespace sluice
