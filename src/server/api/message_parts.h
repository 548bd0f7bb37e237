// The content of a chat message: text, or parts as the clients of several servers write them.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace sluice {

struct MessageText {
  Json content;                // text, or a list of {"type": "text", "text"}
  std::string reasoning;       // of parts that hold reasoning; appended to what stands here
  Json calls = Json::array();  // of parts that are calls
};

// Takes text, input_text, output_text and refusal; of an assistant also thinking, reasoning and
// tool_use. Null parts and encrypted reasoning are skipped. Faults name the part by `path`.
std::optional<Fault> read_content(const Json& content, const std::string& path, bool is_assistant,
                                  MessageText& out);

}  // namespace sluice
