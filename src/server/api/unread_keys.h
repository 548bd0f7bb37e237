// Keys inside messages, tools, tool_choice and chat_template_kwargs that change nothing. They are
// told as other fields are (unknown_fields.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api/chat_prompt.h"

namespace sluice {

// Appends to `ignored` the keys of a chat request that neither the server nor the template reads,
// by their paths without indexes ("messages.content.txt"). `body`: a request that
// read_chat_prompt took with `model`, whose prompt is `prompt`.
void note_unread_keys(const Json& body, const ServedModel& model, const ChatPrompt& prompt,
                      std::vector<std::string>& ignored);

// Appends the fields of a chat that `body` has beside a `prompt`.
void note_chat_fields(const Json& body, std::vector<std::string>& ignored);

}  // namespace sluice
