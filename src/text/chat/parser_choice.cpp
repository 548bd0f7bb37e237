#include "text/chat/parser_choice.h"

namespace sluice {
namespace {

// The first row is used whose marks the template has and whose other mark it has not.
struct Row {
  std::string_view mark, other_mark;  // other_mark: empty for none
  std::string_view without;           // empty: no condition
  std::string_view parser;
};

constexpr Row kToolRows[] = {
    // Marks that one family has.
    {"<|channel|>", "<|message|>", "", "openai"},
    {"<longcat_tool_call>", "", "", "longcat"},
    {"｜DSML｜", "", "", "deepseek_v32"},
    {"<|tool_calls_section_begin|>", "", "", "kimi_k2"},
    {"<minimax:tool_call>", "", "", "minimax_m2"},
    {"<steptml:", "", "", "step3"},
    {"<seed:tool_call>", "", "", "seed_oss"},
    {"<tool_call|>", "", "", "gemma4"},
    {"<start_function_call>", "", "", "functiongemma"},
    {"<|START_ACTION|>", "", "", "cohere_command3"},
    {"<|action_start|>", "", "", "internlm"},
    {"<function_calls>", "", "", "olmo3"},
    {"<|function_call|>", "", "", "gigachat3"},
    {"function call<|role_sep|>", "", "", "gigachat3"},
    {"<TOOLCALL>", "", "", "nemotron_nano_v2"},
    {"<|tool_call_start|>", "", "", "lfm2"},
    {"functools", "", "", "phi4_mini_json"},
    {"<|tool|>", "", "", "phi4_mini_json"},
    {"<|function_call_library|>", "", "", "granite-20b-fc"},
    // Marks that several families have.
    {"<｜tool▁calls▁begin｜>", "```json", "", "deepseek_v3"},
    {"<｜tool▁calls▁begin｜>", "", "", "deepseek_v31"},
    {"<arg_key>", "</arg_key>\\n<arg_value>", "", "glm45"},
    {"<arg_key>", "</arg_key>\n<arg_value>", "", "glm45"},
    {"<arg_key>", "", "", "glm47"},
    {"[TOOL_CALLS]", "[CALL_ID]", "", "mistral_v11"},
    {"[TOOL_CALLS]", "[ARGS]", "", "mistral_v13"},
    {"[TOOL_CALLS]", "", "", "mistral_v3"},
    {"<tool_calls>", "<|extra_0|>", "", "hunyuan_a13b"},
    {"<tool_calls>", "hy_", "", "hunyuan_a13b"},
    {"<tool_calls>", "]~b]", "", "minimax_m1"},
    {"<tool_calls>", "<beginning_of_sentence>", "", "minimax_m1"},
    {"<tool_calls>", "", "", "jamba"},
    {"<|tool_call|>", "", "", "granite"},
    {"<tool_call>", "<|start_of_role|>", "", "granite4"},
    {"<function=", "<|im_start|>tool_response", "", "step3p5"},
    {"<tool_call>", "<function=", "", "qwen3_coder"},
    {"<tool_call>", "<response>", "", "ernie45"},
    {"<tool_call>", "", "<function=", "hermes"},
    // Calls without marks.
    {"[func_name1(", "<|header_start|>", "", "llama4_pythonic"},
    {"[func_name1(", "", "", "pythonic"},
    {"single JSON array", "tool_call_name", "", "xlam"},
    {"<|python_tag|>", "", "", "llama3_json"},
    {"<|python_start|>", "", "", "llama3_json"},
    {"<|start_header_id|>ipython", "", "", "llama3_json"},
    {"<|header_start|>ipython", "", "", "llama3_json"},
};

constexpr Row kReasoningRows[] = {
    {"<|channel|>", "<|message|>", "", "openai_gptoss"},
    {"◁think▷", "", "", "kimi"},
    {"[THINK]", "", "", "mistral"},
    {"<seed:think>", "", "", "seed_oss"},
    {"<longcat_think>", "", "", "longcat"},
    {"<|START_THINKING|>", "", "", "cohere_command3"},
    {"<|channel>", "<channel|>", "", "gemma4"},
    {"my thought process", "", "", "granite"},
    {"<｜Assistant｜><think>", "", "thinking", "deepseek_r1"},
    {"<｜Assistant｜>", "think>", "", "deepseek_v3"},
    {"<arg_key>", "", "think>", ""},
    {"<arg_key>", "</arg_key>\\n<arg_value>", "", "glm45"},
    {"<arg_key>", "</arg_key>\n<arg_value>", "", "glm45"},
    {"<arg_key>", "", "", "glm47"},
    {"</think>", "<minimax:tool_call>", "", "minimax_m2"},
    {"</think>", "<|im_middle|>", "", "kimi_k2"},
    {"think>", "<|extra_0|>", "", "hunyuan"},
    {"</think>", "<answer>", "", "hunyuan"},
    {"</think>", "<response>", "", "ernie45"},
    {"<think>", "<|BOT|>", "", "step3"},
    {"</think>", "<|im_start|>tool_response", "", "step3p5"},
    {"<think>", "<function_calls>", "", "olmo3"},
    {"</think>", "<function=", "", "qwen3_5"},
    {"</think>", "", "", "qwen3"},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <std::size_t N>
std::string detect(const Row (&rows)[N], std::string_view source) {
  for (const Row& row : rows) {
    if (!has(source, row.mark) || !has(source, row.other_mark)) continue;
    if (!row.without.empty() && has(source, row.without)) continue;
    return std::string(row.parser);
  }
  return {};
}

}  // namespace

std::string detect_reasoning_parser(std::string_view source) {
  return detect(kReasoningRows, source);
}

std::string detect_tool_parser(std::string_view source) {
  return detect(kToolRows, source);
}

}  // namespace sluice
