// The input of the Responses API as messages of a chat.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace sluice {

// A message, and the path of what it was made from.
using SourcedMessage = std::pair<Json, std::string>;

// `input`: a string, or an array of items. Reasoning, text and calls that follow each other become
// one message of the assistant. Faults carry the path of the item.
Result<std::vector<SourcedMessage>> read_input(const Json& input);

// The name under which the model knows a tool of a namespace (empty: of none): both, where that is
// short enough for a name.
std::string name_for_model(std::string_view tool_namespace, std::string_view name);

// Appends the keys of items that nobody reads to `ignored`. `input`: what read_input took.
void note_input_keys(const Json& input, std::vector<std::string>& ignored);

// The same input as a list of items, each with an id.
Json listed_items(const Json& input);

// Thoughts as `encrypted_content` has them. They are text in disguise: nothing is secret here.
std::string encoded_thoughts(std::string_view thoughts);

}  // namespace sluice
