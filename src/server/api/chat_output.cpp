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
  const std::string& reasoning = settings.reasoning_parser;
  if (!reasoning.empty()) {
    // Formats that always begin inside do so only where the request leaves thinking on.
    const bool inside =
        settings.continues
            ? message_opens_reasoning(settings.prompt, settings.continued, reasoning)
            : prompt_opens_reasoning(settings.prompt, reasoning, settings.thinking_off);
    reasoning_.emplace(ReasoningParser::create(reasoning, inside));
  }
  if (settings.tool_parser.empty()) return;
  tools_.emplace(ToolParser::create(settings.tool_parser, settings.tools));
  if (reasoning_)
    thought_calls_.emplace(settings.tool_parser, settings.tools,
                           reasoning_parser_marks(reasoning).back());
}

void ChatOutput::push(std::string_view text, ChatDelta& out) {
  if (!reasoning_) return add_content(text, out);
  for (std::size_t at = 0; at < text.size();) {
    if (!in_reasoning() || !thought_calls_) {
      // The reasoning may begin at any byte.
      const std::size_t size = thought_calls_ && !reasoning_->is_over() ? 1 : text.size() - at;
      add_thought(text.substr(at, size), out);
      at += size;
    } else {
      add_thought(thought_calls_->push(text[at]), out);
      ++at;
      if (!in_reasoning()) add_thought(thought_calls_->take(), out);
    }
  }
}

void ChatOutput::finish(ChatDelta& out, bool is_cut) {
  if (reasoning_) {
    std::string calls;
    if (thought_calls_) {
      ThoughtCalls::End end = thought_calls_->finish(is_cut);
      add_thought(end.thought, out);
      calls = std::move(end.calls);
    }
    ReasoningDelta delta = reasoning_->finish();
    out.reasoning += delta.reasoning;
    add_content(delta.content, out);
    add_content(calls, out);
  }
  if (tools_) add_events(tools_->finish(is_cut), out);
}

// Text for the reasoning parser, which divides it into reasoning and answer.
void ChatOutput::add_thought(std::string_view text, ChatDelta& out) {
  if (text.empty()) return;
  ReasoningDelta delta = reasoning_->push(text);
  out.reasoning += delta.reasoning;
  add_content(delta.content, out);
}

void ChatOutput::add_content(std::string_view text, ChatDelta& out) {
  if (text.empty()) return;
  if (tools_)
    add_events(tools_->push(text), out);
  else
    out.content.append(text);
}

}  // namespace sluice
