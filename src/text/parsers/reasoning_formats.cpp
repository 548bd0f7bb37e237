// One row a family: docs/calls.md lists the models of each.
#include <algorithm>

#include "base/error.h"
#include "text/parsers/reasoning_parser.h"

namespace sluice {
namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

// text/chat/parser_choice.cpp finds the row of a template.
constexpr ReasoningFormat kFormats[] = {
    {.name = "qwen3", .aliases = {"interns1", "dots"}, .open = kThink, .close = kEndThink},
    {.name = "qwen3_5",
     .aliases = {"qwen3-thinking", "qwen3_thinking"},
     .open = kThink,
     .close = kEndThink,
     .always = true},
    {.name = "glm45", .aliases = {"glm"}, .open = kThink, .close = kEndThink},
    {.name = "glm47", .open = kThink, .close = kEndThink},
    {.name = "deepseek_r1",
     .aliases = {"deepseek-r1"},
     .open = kThink,
     .close = kEndThink,
     .always = true},
    {.name = "deepseek_v3",
     .aliases = {"deepseek-v3", "deepseek-v31", "deepseek_v31"},
     .open = kThink,
     .close = kEndThink},
    {.name = "kimi", .open = "◁think▷", .close = "◁/think▷"},
    {.name = "kimi_k2", .aliases = {"kimi-k2"}, .open = kThink, .close = kEndThink},
    {.name = "mimo", .open = kThink, .close = kEndThink},
    {.name = "step3", .open = kThink, .close = kEndThink, .always = true},
    {.name = "step3p5", .open = kThink, .close = kEndThink},
    {.name = "minimax_m2",
     .aliases = {"minimax", "minimax-m2"},
     .open = kThink,
     .close = kEndThink,
     .always = true},
    {.name = "minimax_append_think",
     .aliases = {"minimax-append-think", "minimax_m2_append_think"},
     .kind = ReasoningKind::kAppend,
     .open = kThink,
     .close = kEndThink},
    {.name = "mistral", .open = "[THINK]", .close = "[/THINK]"},
    {.name = "granite",
     .open = "Here is my thought process:",
     .close = "Here is my response:",
     .other_open = "Here's my thought process:",
     .other_close = "Here's my response:"},
    {.name = "ernie45",
     .open = kThink,
     .close = kEndThink,
     .answer_open = "<response>",
     .answer_close = "</response>"},
    {.name = "hunyuan",
     .aliases = {"hunyuan_a13b"},
     .open = kThink,
     .close = kEndThink,
     .answer_open = "<answer>",
     .answer_close = "</answer>"},
    {.name = "seed_oss", .open = "<seed:think>", .close = "</seed:think>"},
    {.name = "longcat", .open = "<longcat_think>", .close = "</longcat_think>"},
    {.name = "olmo3", .open = kThink, .close = kEndThink},
    {.name = "nemotron_v3", .aliases = {"nemotron_3"}, .open = kThink, .close = kEndThink},
    {.name = "cohere_command3",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .answer_open = "<|START_RESPONSE|>",
     .answer_close = "<|END_RESPONSE|>"},
    {.name = "gemma4",
     .open = "<|channel>thought",
     .close = "<channel|>",
     .more_marks = {"<|channel>"}},
    {.name = "openai_gptoss",
     .aliases = {"gpt-oss", "gpt_oss", "harmony"},
     .kind = ReasoningKind::kChannels,
     .more_marks = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>",
                    "<|constrain|>"}},
    {.name = "identity", .kind = ReasoningKind::kNone},
};

}  // namespace

std::span<const ReasoningFormat> reasoning_formats() {
  return kFormats;
}

const ReasoningFormat& find_reasoning_format(std::string_view name) {
  for (const ReasoningFormat& format : kFormats)
    if (!name.empty() &&
        (format.name == name ||
         std::find(format.aliases.begin(), format.aliases.end(), name) != format.aliases.end()))
      return format;
  std::string known;
  for (const ReasoningFormat& format : kFormats)
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  fail(ErrorKind::kBadInput, "unknown reasoning parser '{}'; known are: {}", name, known);
}

}  // namespace sluice
