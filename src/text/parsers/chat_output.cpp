#include "text/parsers/chat_output.h"

#include <utility>

namespace sluice {
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
  const ReasoningFormat* reasoning = settings.reasoning_parser.empty()
                                         ? nullptr
                                         : &find_reasoning_format(settings.reasoning_parser);
  const ToolFormat* tools =
      settings.tool_parser.empty() ? nullptr : &find_tool_format(settings.tool_parser);
  const bool has_calls_in_channels = tools && tools->syntax == CallSyntax::kChannels;
  if (has_calls_in_channels || (reasoning && reasoning->kind == ReasoningKind::kChannels)) {
    harmony_.emplace(has_calls_in_channels);
    harmony_->start_behind(settings.prompt);
    if (settings.is_whole) harmony_->hold_calls();
    return;
  }
  if (reasoning) {
    // Formats that always begin inside do so only where the request leaves thinking on.
    const ReasoningStart start =
        settings.continues
            ? message_reasoning_start(settings.prompt, settings.continued, reasoning->name)
            : reasoning_start(settings.prompt, reasoning->name, settings.thinking_off);
    reasoning_.emplace(ReasoningParser::create(reasoning->name, start));
  }
  if (reasoning && !reasoning->answer_open.empty())
    frame_.emplace(reasoning->answer_open, reasoning->answer_close);
  else if (tools && !tools->answer_open.empty())
    frame_.emplace(tools->answer_open, tools->answer_close);
  if (!tools) return;
  tools_.emplace(ToolParser::create(tools->name, settings.tools));
  if (settings.is_whole) tools_->hold_calls();
  if (reasoning && reasoning->kind == ReasoningKind::kMarks)
    thought_calls_.emplace(std::string(tools->name), settings.tools, std::string(reasoning->close));
}

std::span<const ThoughtRange> ChatOutput::thoughts() const {
  if (harmony_) return harmony_->thoughts();
  return reasoning_ ? reasoning_->thoughts() : std::span<const ThoughtRange>();
}

void ChatOutput::push(std::string_view text, ChatDelta& out,
                      std::span<const std::size_t> token_starts) {
  add_text(text, out);
  thought_tokens_.add(token_starts);
  thought_tokens_.settle(thoughts(), harmony_     ? harmony_->num_divided()
                                     : reasoning_ ? reasoning_->num_divided()
                                                  : kTextEnd);
}

void ChatOutput::finish(ChatDelta& out, bool is_cut, std::string_view stop) {
  end_text(out, is_cut, stop);
  thought_tokens_.settle(thoughts(), kTextEnd);
}

void ChatOutput::add_text(std::string_view text, ChatDelta& out) {
  if (harmony_) return add_events(harmony_->push(text), out);
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

void ChatOutput::end_text(ChatDelta& out, bool is_cut, std::string_view stop) {
  if (harmony_) return add_events(harmony_->finish(is_cut), out);
  if (reasoning_) {
    std::string calls;
    if (thought_calls_) {
      ThoughtCalls::End end = thought_calls_->finish(is_cut);
      add_thought(end.thought, out);
      calls = std::move(end.calls);
      if (!calls.empty()) reasoning_->close_reasoning();
    }
    ReasoningDelta delta = reasoning_->finish(is_cut);
    out.reasoning += delta.reasoning;
    add_content(delta.content, out);
    add_content(calls, out);
  }
  if (tools_) {
    if (is_cut) add_events(tools_->push_stop(stop), out);
    add_events(tools_->finish(is_cut), out);
  }
  if (frame_) out.content += frame_->finish();
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
    out.content += frame_ ? frame_->push(text) : std::string(text);
}

void ChatOutput::add_events(std::vector<ToolEvent>&& events, ChatDelta& out) {
  for (ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kContent:
        out.content += frame_ ? frame_->push(event.text) : event.text;
        break;
      case ToolEvent::Kind::kReasoning:
        out.reasoning += event.text;
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

}  // namespace sluice
