#include "server/api/chat_output.h"

namespace sluice {
namespace {

void add_events(std::vector<ToolEvent>&& events, ChatDelta& out) {
  for (ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kContent:
        out.content += event.text;
        break;
      case ToolEvent::Kind::kBegin:
        out.tools.push_back({event.index, std::move(event.id), std::move(event.name), ""});
        break;
      case ToolEvent::Kind::kArguments:
        if (!out.tools.empty() && out.tools.back().index == event.index)
          out.tools.back().arguments += event.text;
        else
          out.tools.push_back({event.index, "", "", std::move(event.text)});
        break;
    }
  }
}

}  // namespace

std::vector<std::int32_t> parser_tokens(const Tokenizer& tokenizer,
                                        const ChatOutputSettings& settings) {
  std::vector<std::string> marks;
  if (!settings.reasoning_parser.empty()) marks = reasoning_parser_marks(settings.reasoning_parser);
  if (!settings.tool_parser.empty())
    for (std::string& mark : tool_parser_marks(settings.tool_parser))
      marks.push_back(std::move(mark));
  std::vector<std::int32_t> ids;
  for (const std::string& mark : marks)
    if (const auto id = tokenizer.token_id(mark)) ids.push_back(*id);
  return ids;
}

ChatOutput::ChatOutput(const ChatOutputSettings& settings) {
  // Formats that always begin inside do so only where the request leaves thinking on.
  if (!settings.reasoning_parser.empty())
    reasoning_.emplace(ReasoningParser::create(
        settings.reasoning_parser,
        !settings.thinking_off &&
            prompt_opens_reasoning(settings.prompt, settings.reasoning_parser)));
  if (!settings.tool_parser.empty())
    tools_.emplace(ToolParser::create(settings.tool_parser, settings.tools));
}

void ChatOutput::push(std::string_view text, ChatDelta& out) {
  if (text.empty()) return;
  if (!reasoning_) return add_content(text, out);
  ReasoningDelta delta = reasoning_->push(text);
  out.reasoning += delta.reasoning;
  add_content(delta.content, out);
}

void ChatOutput::finish(ChatDelta& out) {
  if (reasoning_) {
    ReasoningDelta delta = reasoning_->finish();
    out.reasoning += delta.reasoning;
    add_content(delta.content, out);
  }
  if (tools_) add_events(tools_->finish(), out);
}

void ChatOutput::add_content(std::string_view text, ChatDelta& out) {
  if (text.empty()) return;
  if (tools_)
    add_events(tools_->push(text), out);
  else
    out.content.append(text);
}

}  // namespace sluice
