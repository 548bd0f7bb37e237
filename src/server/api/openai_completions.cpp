// POST /v1/completions: prompts as text or ids, one or many; echo, log-probabilities, streams.
#include "server/api/handlers.h"
#include "server/api/openai_format.h"
#include "server/api/prompts.h"
#include "server/api/text_offsets.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPrompts = 1024;

class CompletionFormat : public ReplyFormat {
 public:
  struct Settings {
    AnswerHead head;
    int num_choices = 1;
    bool echo = false;
    bool logprobs = false;
    bool include_usage = false;
    bool continuous_usage = false;
    bool token_ids = false;
    bool skip_special_tokens = true;
  };

  CompletionFormat(Settings settings, const ServedModel* model,
                   std::vector<std::vector<std::int32_t>> prompts,
                   std::vector<std::string> echo_texts)
      : set_(std::move(settings)),
        model_(model),
        prompts_(std::move(prompts)),
        echo_texts_(std::move(echo_texts)),
        prompt_rows_(prompts_.size()),
        choices_(prompts_.size() * set_.num_choices) {
    if (!set_.echo) return;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      choices_[i].text = echo_texts_[i / set_.num_choices];
  }

  void prompt_logprobs(int prompt, std::vector<RowLogprobs>&& rows) override {
    prompt_rows_[prompt] = std::move(rows);
  }

  void add(const ChoiceUpdate& update) override {
    Choice& choice = choices_[update.index];
    if (!choice.begun) {
      choice.begun = true;
      if (set_.echo && set_.logprobs) add_prompt_logprobs(choice, update.prompt);
    }
    choice.text += update.text;
    // A token that ends the answer has its row too: clients of `echo` (lm-eval) count on one row
    // for every token of usage.completion_tokens, and cut the last `max_tokens` of them off.
    for (std::size_t i = 0; i < update.tokens.size() && set_.logprobs && i < update.logprobs.size();
         ++i)
      add_logprob(choice, update.tokens[i], &update.logprobs[i],
                  offset_of(choice, update.tokens[i]));
    if (set_.token_ids)
      for (const std::int32_t id : update.tokens) choice.token_ids.push_back(id);
    choice.finish = update.finish;
    choice.matched_stop = matched_stop_json(update);
    choice.captures = update.captures;
  }

  void first_events(std::string&) override {}

  void emit(int index, const GenerationTotals& totals, std::string& events) override {
    Choice& choice = choices_[index];
    const bool last = choice.finish != FinishReason::kNone;
    if (choice.text.empty() && choice.tokens.empty() && choice.token_ids.empty() && !last) return;
    Json chunk = set_.head.json("text_completion");
    chunk["choices"] = Json::array({choice_json(index)});
    if (set_.continuous_usage)
      chunk["usage"] = usage_json(totals, 0);
    else if (set_.include_usage)
      chunk["usage"] = nullptr;
    append_event(events, dump_json(chunk));
    choice.text.clear();
    choice.tokens = choice.token_logprobs = choice.top_logprobs = choice.text_offset =
        Json::array();
    choice.token_ids = Json::array();
  }

  void last_events(const GenerationTotals& totals, std::string& events) override {
    if (!set_.include_usage) return;
    Json chunk = set_.head.json("text_completion");
    chunk["choices"] = Json::array();
    chunk["usage"] = usage_json(totals, 0);
    append_event(events, dump_json(chunk));
  }

  std::string body(const GenerationTotals& totals) override {
    Json answer = set_.head.json("text_completion");
    answer["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i)
      answer["choices"].push_back(choice_json(static_cast<int>(i)));
    answer["usage"] = usage_json(totals, 0);
    return dump_json(answer);
  }

 private:
  struct Choice {
    std::string text;
    Json tokens = Json::array(), token_logprobs = Json::array(), top_logprobs = Json::array();
    Json text_offset = Json::array(), token_ids = Json::array();
    TextOffsets offsets;
    FinishReason finish = FinishReason::kNone;
    Json matched_stop;
    std::optional<Json> captures{};
    bool begun = false;
  };

  void add_prompt_logprobs(Choice& choice, int prompt) {
    const auto& ids = prompts_[prompt];
    const auto& rows = prompt_rows_[prompt];
    const std::string& text = echo_texts_[static_cast<std::size_t>(prompt)];
    PromptOffsets offsets(text);
    for (std::size_t i = 0; i < ids.size(); ++i)
      add_logprob(choice, ids[i], i > 0 && i - 1 < rows.size() ? &rows[i - 1] : nullptr,
                  offsets.add(model_->tokenizer->token_bytes_view(ids[i]),
                              model_->tokenizer->is_special(ids[i])));
    choice.offsets.begin_at(num_characters(text));
  }

  std::size_t offset_of(Choice& choice, std::int32_t token) const {
    if (set_.skip_special_tokens && model_->tokenizer->is_special(token))
      return choice.offsets.add_hidden();
    return choice.offsets.add(model_->tokenizer->token_bytes_view(token));
  }

  void add_logprob(Choice& choice, std::int32_t token, const RowLogprobs* row, std::size_t offset) {
    const std::string text = token_text(*model_->tokenizer, token);
    choice.tokens.push_back(text);
    choice.text_offset.push_back(offset);
    if (!row) {
      choice.token_logprobs.push_back(nullptr);
      choice.top_logprobs.push_back(nullptr);
      return;
    }
    choice.token_logprobs.push_back(row->logprob);
    Json top = Json::object();
    // Tokens of one text (parts of a character) share an entry: the likeliest, which comes first.
    for (const TokenLogprob& candidate : row->top)
      top.emplace(token_text(*model_->tokenizer, candidate.token), candidate.logprob);
    if (!top.contains(text)) top[text] = row->logprob;
    choice.top_logprobs.push_back(std::move(top));
  }

  Json choice_json(int index) {
    const Choice& choice = choices_[index];
    Json json{{"index", index}, {"text", choice.text}, {"logprobs", nullptr}};
    if (set_.logprobs)
      json["logprobs"] = Json{{"tokens", choice.tokens},
                              {"token_logprobs", choice.token_logprobs},
                              {"top_logprobs", choice.top_logprobs},
                              {"text_offset", choice.text_offset}};
    json["finish_reason"] = finish_reason_json(choice.finish);
    json["matched_stop"] = choice.matched_stop;
    if (set_.token_ids) {
      json["prompt_token_ids"] = prompts_[index / set_.num_choices];
      json["token_ids"] = choice.token_ids;
    }
    if (choice.captures) json["captures"] = *choice.captures;
    return json;
  }

  const Settings set_;
  const ServedModel* const model_;
  const std::vector<std::vector<std::int32_t>> prompts_;
  const std::vector<std::string> echo_texts_;  // by prompt
  std::vector<std::vector<RowLogprobs>> prompt_rows_;
  std::vector<Choice> choices_;
};

// A string, strings, ids, or lists of ids; with the text to echo for each.
std::optional<Fault> read_prompts(const ServedModel& model, const Json& prompt, bool add_special,
                                  std::vector<std::vector<std::int32_t>>& ids,
                                  std::vector<std::string>& texts) {
  const auto add_text = [&](const std::string& text,
                            const std::string& param) -> std::optional<Fault> {
    auto encoded = encode_prompt(model, text, param, add_special);
    if (!encoded) return encoded.fault();
    ids.push_back(std::move(*encoded));
    texts.push_back(to_valid_utf8(text));
    return std::nullopt;
  };
  const auto add_ids = [&](const Json& list, const std::string& param) -> std::optional<Fault> {
    auto read = read_token_ids(model, list, param);
    if (!read) return read.fault();
    texts.push_back(model.tokenizer->decode(*read, false));
    ids.push_back(std::move(*read));
    return std::nullopt;
  };
  if (prompt.is_string()) return add_text(prompt.get_ref<const std::string&>(), "prompt");
  if (!prompt.is_array())
    return wrong_type("prompt", "a string, an array of strings, token ids or arrays of token ids",
                      json_type_name(prompt));
  if (prompt.empty())
    return Fault{400, "empty_prompt", "prompt", "`prompt` is empty; give at least one token."};
  if (prompt[0].is_number() || is_big_integer(prompt[0])) return add_ids(prompt, "prompt");
  if (prompt.size() > kMaxPrompts)
    return invalid_value("prompt", fmt::format("`prompt` has {} prompts; at most {} are allowed.",
                                               prompt.size(), kMaxPrompts));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::string param = fmt::format("prompt.{}", i);
    std::optional<Fault> fault = prompt[i].is_string()
                                     ? add_text(prompt[i].get_ref<const std::string&>(), param)
                                     : add_ids(prompt[i], param);
    if (fault) return fault;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Fault> handle_completions(ServerState& state, const HttpRequest& request,
                                        const std::shared_ptr<Responder>& responder) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel* const model = *serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  GenerationFields fields;
  if (auto fault = read_fields(*body, kCompletionApi, "", {model->vocab_size}, fields))
    return fault;
  if (auto fault = check_model(*model, fields.model)) return fault;
  const auto prompt = body->find("prompt");
  if (prompt == body->end() || prompt->is_null()) return missing_field("prompt");

  // The interface's default length is 16 tokens, or what the context still holds.
  const bool asked = fields.max_tokens.has_value();
  if (!asked) fields.max_tokens = 16;
  GenerationPlan plan = make_plan(state, *model, request, fields);
  std::vector<std::string> texts;
  if (auto fault = read_prompts(*model, *prompt, fields.add_special_tokens.value_or(true),
                                plan.prompts, texts))
    return fault;
  if (auto fault = fit_context(*model, plan, asked, "prompt")) return fault;
  if (auto fault = check_least(*model, plan, "min_tokens")) return fault;
  if (auto fault = add_grammar(*model, request, fields, plan)) return fault;
  tell_ignored(*responder, fields.ignored);

  CompletionFormat::Settings settings;
  settings.head = {answer_id("cmpl-", fields), static_cast<std::int64_t>(std::time(nullptr)),
                   fields.model.value_or(model->names[0])};
  settings.num_choices = plan.request.num_choices;
  settings.echo = fields.echo.value_or(false);
  settings.logprobs = fields.num_logprobs.has_value();
  settings.include_usage = fields.include_usage;
  settings.continuous_usage = fields.continuous_usage;
  settings.token_ids = fields.return_token_ids.value_or(false);
  settings.skip_special_tokens = plan.skip_special_tokens;
  if (settings.logprobs) {
    plan.request.params.num_top_logprobs = static_cast<int>(*fields.num_logprobs);
    if (settings.echo) plan.request.logprob_start = 0;
  }
  plan.format = std::make_unique<CompletionFormat>(settings, model, plan.prompts, std::move(texts));
  start_generation(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

}  // namespace sluice
