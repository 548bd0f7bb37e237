#include "text/parsers/reasoning_parser.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace sluice {

struct ReasoningFormat {
  std::string_view name;
  std::array<std::string_view, 3> aliases;
  std::string_view open, close;
  bool always;  // templates of these models open the reasoning, and the model does not repeat the
                // mark
};

namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

constexpr ReasoningFormat kFormats[] = {
    {"deepseek-r1", {"deepseek_r1"}, kThink, kEndThink, true},
    {"deepseek-v3", {"deepseek_v3", "deepseek-v31"}, kThink, kEndThink, false},
    {"qwen3", {}, kThink, kEndThink, false},
    {"qwen3-thinking", {"qwen3_thinking"}, kThink, kEndThink, true},
    {"glm45", {"glm", "glm47"}, kThink, kEndThink, false},
    {"kimi", {}, "◁think▷", "◁/think▷", false},
    {"kimi_k2", {"kimi-k2"}, kThink, kEndThink, false},
    {"mimo", {}, kThink, kEndThink, false},
    {"step3", {}, kThink, kEndThink, true},
    {"minimax", {"minimax-m2", "minimax_m2"}, kThink, kEndThink, true},
    {"interns1", {}, kThink, kEndThink, false},
    {"mistral", {}, "[THINK]", "[/THINK]", false},
};

const ReasoningFormat& find_format(std::string_view name) {
  for (const ReasoningFormat& format : kFormats)
    if (format.name == name ||
        (!name.empty() &&
         std::find(format.aliases.begin(), format.aliases.end(), name) != format.aliases.end()))
      return format;
  std::string known;
  for (const ReasoningFormat& format : kFormats)
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  fail(ErrorKind::kBadInput, "unknown reasoning parser '{}'; known are: {}", name, known);
}

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

std::vector<std::string> known_reasoning_parsers() {
  std::vector<std::string> names;
  for (const ReasoningFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::vector<std::string> reasoning_parser_marks(std::string_view name) {
  const ReasoningFormat& format = find_format(name);
  return {std::string(format.open), std::string(format.close)};
}

std::string reasoning_parser_name(std::string_view name) {
  return std::string(find_format(name).name);
}

bool prompt_opens_reasoning(std::string_view prompt, std::string_view name, bool is_off) {
  const ReasoningFormat& format = find_format(name);
  while (!prompt.empty() && is_blank(prompt.back())) prompt.remove_suffix(1);
  return prompt.ends_with(format.open) ||
         (format.always && !is_off && !prompt.ends_with(format.close));
}

bool message_opens_reasoning(std::string_view prompt, std::string_view message,
                             std::string_view name) {
  const ReasoningFormat& format = find_format(name);
  const std::size_t open = message.rfind(format.open), close = message.rfind(format.close);
  if (open != std::string_view::npos) return close == std::string_view::npos || close < open;
  if (close != std::string_view::npos) return false;
  if (prompt.ends_with(message)) prompt.remove_suffix(message.size());
  return prompt_opens_reasoning(prompt, name, true);
}

ReasoningParser::ReasoningParser(const ReasoningFormat& format, bool starts_inside)
    : opening_(starts_inside ? std::vector<std::string_view>{format.open}
                             : std::vector<std::string_view>{format.open, format.close}),
      closing_({format.close}),
      state_(starts_inside ? State::kReasoning : State::kStart) {}

ReasoningParser ReasoningParser::create(std::string_view name, bool starts_inside) {
  return ReasoningParser(find_format(name), starts_inside);
}

ReasoningDelta ReasoningParser::push(std::string_view text) {
  ReasoningDelta out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (state_ == State::kContent) {
      out.content += text.substr(i);
      break;
    }
    step(text[i], out);
  }
  return out;
}

void ReasoningParser::step(char c, ReasoningDelta& out) {
  switch (state_) {
    case State::kStart: {
      if (!opening_.holding() && is_blank(c)) {
        held_ += c;
        return;
      }
      const int marker = opening_.push(c, held_);
      if (marker >= 0) {
        held_.clear();
        state_ = marker == 0 ? State::kReasoning : State::kAfter;
        opening_ = MarkerScanner();  // a second mark would be text
      } else if (!opening_.holding()) {
        out.content += held_;
        held_.clear();
        state_ = State::kContent;
      }
      return;
    }
    case State::kReasoning:
      step_reasoning(c, out);
      return;
    case State::kAfter:
      if (c == '\n') return;
      state_ = State::kContent;
      [[fallthrough]];
    case State::kContent:
      out.content += c;
      return;
  }
}

void ReasoningParser::step_reasoning(char c, ReasoningDelta& out) {
  std::string text;
  if (at_start_ && (opening_.holding() || !is_blank(c))) {
    // The prompt opened the reasoning, and the model may open it again.
    if (opening_.push(c, text) == 0) {
      opening_ = MarkerScanner();
      return;
    }
    if (text.empty()) return;
    opening_.flush(text);
    opening_ = MarkerScanner();
  } else {
    text += c;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string plain;
    const bool closed = closing_.push(text[i], plain) == 0;
    append_reasoning(plain, out);
    if (!closed) continue;
    newlines_ = 0;
    state_ = State::kAfter;
    for (++i; i < text.size(); ++i) step(text[i], out);
  }
}

void ReasoningParser::append_reasoning(std::string_view text, ReasoningDelta& out) {
  for (const char c : text) {
    if (c == '\n') {
      newlines_ += !at_start_;
      continue;
    }
    at_start_ = false;
    out.reasoning.append(newlines_, '\n');
    newlines_ = 0;
    out.reasoning += c;
  }
}

ReasoningDelta ReasoningParser::finish() {
  ReasoningDelta out;
  if (state_ == State::kStart) {
    opening_.flush(held_);
    out.content = std::move(held_);
  } else if (state_ == State::kReasoning) {
    std::string plain;
    closing_.flush(plain);
    opening_.flush(plain);
    append_reasoning(plain, out);
  }
  state_ = State::kContent;
  return out;
}

}  // namespace sluice
