#include "server/api/chat_plan.h"

#include "server/api/chat_prompt.h"
#include "server/api/prompts.h"
#include "server/api/tool_choice.h"
#include "server/api/unknown_fields.h"
#include "server/api/unread_keys.h"
#include "server/core/errors.h"
#include "server/core/thinking_budget.h"
#include "text/parsers/reasoning_parser.h"

namespace sluice {
namespace {

std::optional<Fault> add_budget(const ServedModel& model, const ChatPrompt& prompt,
                                GenerationFields& fields, Request& request) {
  if (!fields.thinking_budget) return std::nullopt;
  const auto ignore = [&fields]() -> std::optional<Fault> {
    note_without_effect("thinking_token_budget", fields.ignored);
    return std::nullopt;
  };
  if (model.reasoning_parser.empty()) return ignore();
  const ReasoningFormat& format = find_reasoning_format(model.reasoning_parser);
  if (format.kind == ReasoningKind::kNone || format.kind == ReasoningKind::kAppend) return ignore();
  const ReasoningStart start =
      prompt.continues
          ? message_reasoning_start(prompt.text, prompt.continued, model.reasoning_parser)
          : reasoning_start(prompt.text, model.reasoning_parser, prompt.thinking_off);
  if (start == ReasoningStart::kBehind) return ignore();
  const std::optional<std::int32_t> close = model.tokenizer->token_id(format.close);
  if (format.kind == ReasoningKind::kChannels || !close)
    return unsupported("thinking_token_budget",
                       "the thoughts of this model do not end with one token of their own.");
  ThinkingBudget budget;
  budget.max_tokens = *fields.thinking_budget;
  budget.open = model.tokenizer->token_id(format.open);
  budget.close = *close;
  budget.is_thinking = start == ReasoningStart::kInside;
  budget.tokenizer = model.tokenizer;
  request.make_constraint = limit_thoughts(std::move(budget), std::move(request.make_constraint));
  return std::nullopt;
}

}  // namespace

Result<ChatPlan> plan_chat(const ServerState& state, const ServedModel& model,
                           const HttpRequest& request, const Json& body, GenerationFields& fields,
                           const ChatPlanOptions& options) {
  Result<ChatPrompt> prompt = read_chat_prompt(model, body);
  if (!prompt) return prompt.fault();
  note_unread_keys(body, model, *prompt, fields.ignored);
  ChatPlan chat{make_plan(state, model, request, fields), {}};
  GenerationPlan& plan = chat.plan;
  plan.prompts.push_back(std::move(prompt->ids));
  if (options.fit_answer) {
    if (auto fault = check_context(model, plan.prompts[0].size(), -1, "messages")) return *fault;
    const int left = model.engine->context_length() - static_cast<int>(plan.prompts[0].size());
    if (plan.request.max_new_tokens > left) plan.request.max_new_tokens = left;
  } else if (auto fault = check_context(model, plan.prompts[0].size(), plan.request.max_new_tokens,
                                        "messages")) {
    return *fault;
  }
  if (auto fault = check_least(model, plan, "min_tokens")) return *fault;
  const auto wanted = body.find("tool_choice");
  Result<ToolChoice> choice =
      read_tool_choice(wanted == body.end() ? Json() : *wanted, prompt->tools);
  if (!choice) return choice.fault();
  if (auto fault = constrain_calls(state, model, *prompt, *choice, fields)) return *fault;
  allow_thoughts(model, *prompt, fields);
  if (auto fault = add_grammar(model, request, fields, plan)) return *fault;
  if (auto fault = add_budget(model, *prompt, fields, plan.request)) return *fault;
  chat.one_call = choice->is_single || !fields.parallel_tool_calls.value_or(true);
  ChatOutputSettings& output = chat.output;
  if (fields.separate_reasoning.value_or(true)) output.reasoning_parser = model.reasoning_parser;
  if (!prompt->tools.is_null()) output.tool_parser = model.tool_parser;
  plan.kept_tokens = parser_tokens(*model.tokenizer, output);
  output.prompt = std::move(prompt->text);
  output.thinking_off = prompt->thinking_off;
  output.continues = prompt->continues;
  output.continued = std::move(prompt->continued);
  output.tools = std::move(prompt->tools);
  output.is_whole = !plan.stream;
  return chat;
}

}  // namespace sluice
