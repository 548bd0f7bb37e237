// POST /generate and /health_generate: SGLang's own interface. Streamed text is cumulative.
#include <algorithm>

#include "server/api/handlers.h"
#include "server/api/openai_format.h"
#include "server/api/prompts.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "speculative/draft_counts.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPrompts = 1024;
constexpr std::int64_t kDefaultNewTokens = 128;

class NativeFormat : public ReplyFormat {
 public:
  struct Settings {
    std::vector<std::string> ids;  // by prompt
    bool batch = false;            // the answer is an array
    int num_choices = 1;
    bool logprobs = false;
    int logprob_start = -1;  // -1: no prompt part
    int num_top = 0;
    bool text_in_logprobs = false;
  };

  NativeFormat(Settings settings, const ServedModel* model,
               std::vector<std::vector<std::int32_t>> prompts)
      : set_(std::move(settings)),
        model_(model),
        prompts_(std::move(prompts)),
        prompt_rows_(prompts_.size()),
        choices_(prompts_.size() * set_.num_choices) {}

  void prompt_logprobs(int prompt, std::vector<RowLogprobs>&& rows) override {
    prompt_rows_[prompt] = std::move(rows);
  }

  void add(const ChoiceUpdate& update) override {
    Choice& choice = choices_[update.index];
    choice.text += update.text;
    choice.output_ids.insert(choice.output_ids.end(), update.tokens.begin(), update.tokens.end());
    choice.rows.insert(choice.rows.end(), update.logprobs.begin(), update.logprobs.end());
    choice.finish = update.finish;
    choice.matched = matched_stop_json(update);
    choice.captures = update.captures;
    if (update.finish != FinishReason::kNone) choice.end = std::chrono::steady_clock::now();
  }

  void first_events(std::string&) override {}
  void last_events(const GenerationTotals&, std::string&) override {}

  void emit(int index, const GenerationTotals& totals, std::string& events) override {
    Json json = choice_json(index, totals);
    if (set_.batch || set_.num_choices > 1) json["index"] = index;
    append_event(events, dump_json(json));
  }

  std::string body(const GenerationTotals& totals) override {
    if (!set_.batch && set_.num_choices == 1) return dump_json(choice_json(0, totals));
    Json all = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i)
      all.push_back(choice_json(static_cast<int>(i), totals));
    return dump_json(all);
  }

 private:
  struct Choice {
    std::string text;
    std::vector<std::int32_t> output_ids;
    std::vector<RowLogprobs> rows;
    FinishReason finish = FinishReason::kNone;
    Json matched;
    std::optional<Json> captures{};
    std::chrono::steady_clock::time_point end{};
  };

  // [logprob, id, text or null]
  Json entry(Json logprob, std::int32_t id) const {
    return Json::array(
        {std::move(logprob), id,
         set_.text_in_logprobs ? Json(token_text(*model_->tokenizer, id)) : Json(nullptr)});
  }

  Json top_entries(const RowLogprobs& row) const {
    Json list = Json::array();
    for (const TokenLogprob& candidate : row.top)
      list.push_back(entry(candidate.logprob, candidate.token));
    return list;
  }

  Json finish_json(const Choice& choice) const {
    if (choice.finish == FinishReason::kNone) return nullptr;
    Json json{{"type", finish_reason_name(choice.finish)}};
    if (choice.finish == FinishReason::kStop) json["matched"] = choice.matched;
    if (choice.finish == FinishReason::kLength) json["length"] = choice.output_ids.size();
    if (choice.finish == FinishReason::kAbort) json["message"] = "Aborted";
    return json;
  }

  void add_prompt_logprobs(int prompt, Json& meta) const {
    Json tokens = Json::array(), top = Json::array();
    const auto& ids = prompts_[prompt];
    const auto& rows = prompt_rows_[prompt];
    const std::size_t start = static_cast<std::size_t>(set_.logprob_start);
    // The first token has nothing before it that could predict it.
    for (std::size_t i = start; i < ids.size(); ++i) {
      if (i == start) {
        tokens.push_back(entry(nullptr, ids[i]));
        top.push_back(nullptr);
        continue;
      }
      const std::size_t row = i - start - 1;
      if (row >= rows.size()) break;
      tokens.push_back(entry(rows[row].logprob, ids[i]));
      top.push_back(top_entries(rows[row]));
    }
    meta["input_token_logprobs"] = std::move(tokens);
    if (set_.num_top > 0) meta["input_top_logprobs"] = std::move(top);
  }

  Json choice_json(int index, const GenerationTotals& totals) const {
    const Choice& choice = choices_[index];
    const int prompt = index / set_.num_choices;
    const auto end =
        choice.finish == FinishReason::kNone ? std::chrono::steady_clock::now() : choice.end;
    Json meta{{"id", set_.ids[prompt]},
              {"finish_reason", finish_json(choice)},
              {"prompt_tokens", totals.prompt_tokens[prompt]},
              {"weight_version", "default"},
              {"completion_tokens", totals.completion_tokens[index]},
              {"cached_tokens", totals.cached_tokens[prompt]},
              {"queue_time", totals.queue_s},
              {"e2e_latency", std::chrono::duration<double>(end - totals.arrival).count()}};
    add_draft_counts(totals.drafts[index], totals.completion_tokens[index], meta);
    if (choice.captures) meta["captures"] = *choice.captures;
    if (set_.logprobs) {
      if (set_.logprob_start >= 0) {
        add_prompt_logprobs(prompt, meta);
      } else {
        meta["input_token_logprobs"] = Json::array();
        if (set_.num_top > 0) meta["input_top_logprobs"] = Json::array();
      }
      Json tokens = Json::array(), top = Json::array();
      for (std::size_t i = 0; i < choice.rows.size(); ++i) {
        tokens.push_back(entry(choice.rows[i].logprob, choice.output_ids[i]));
        top.push_back(top_entries(choice.rows[i]));
      }
      meta["output_token_logprobs"] = std::move(tokens);
      if (set_.num_top > 0) meta["output_top_logprobs"] = std::move(top);
    }
    return Json{
        {"text", choice.text}, {"output_ids", choice.output_ids}, {"meta_info", std::move(meta)}};
  }

  const Settings set_;
  const ServedModel* const model_;
  const std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<std::vector<RowLogprobs>> prompt_rows_;
  std::vector<Choice> choices_;
};

// `text` or `input_ids`, single or batch.
std::optional<Fault> read_input(const ServedModel& model, const Json& body, bool add_special,
                                bool& batch, std::vector<std::vector<std::int32_t>>& prompts) {
  const auto given = [&](const char* name) { return body.contains(name) && !body[name].is_null(); };
  if (given("text") == given("input_ids"))
    return Fault{400, "missing_required_parameter", "text", "Give either `text` or `input_ids`."};
  const char* name = given("text") ? "text" : "input_ids";
  const Json& input = body[name];
  const bool is_text = given("text");
  batch = input.is_array() && !input.empty() && (is_text || input[0].is_array());
  const auto add = [&](const Json& item, const std::string& param) -> std::optional<Fault> {
    if (is_text && !item.is_string())
      return wrong_type(param, "a string or an array of strings", json_type_name(item));
    auto ids = is_text
                   ? encode_prompt(model, item.get_ref<const std::string&>(), param, add_special)
                   : read_token_ids(model, item, param);
    if (!ids) return ids.fault();
    prompts.push_back(std::move(*ids));
    return std::nullopt;
  };
  if (is_text && input.is_array() && input.empty())
    return Fault{400, "empty_prompt", name, "`text` is empty; give at least one prompt."};
  if (!batch) return add(input, name);
  if (input.size() > kMaxPrompts)
    return invalid_value(name, fmt::format("`{}` has {} prompts; at most {} are allowed.", name,
                                           input.size(), kMaxPrompts));
  for (std::size_t i = 0; i < input.size(); ++i)
    if (auto fault = add(input[i], fmt::format("{}.{}", name, i))) return fault;
  return std::nullopt;
}

// SGLang accepts one rid, or one for each prompt of a batch.
std::optional<Fault> read_rids(const Json& body, std::size_t num_prompts,
                               const std::string& fallback, std::vector<std::string>& out) {
  const auto rid = body.find("rid");
  if (rid != body.end() && rid->is_array()) {
    if (rid->size() != num_prompts)
      return invalid_value(
          "rid", fmt::format("`rid` has {} entries for {} prompts.", rid->size(), num_prompts));
    for (const Json& item : *rid) {
      if (!item.is_string() || item.get_ref<const std::string&>().size() > 128)
        return wrong_type("rid", "a string of at most 128 bytes, or one for each prompt",
                          json_type_name(item));
      if (std::find(out.begin(), out.end(), item.get_ref<const std::string&>()) != out.end())
        return invalid_value("rid",
                             fmt::format("`rid` names {} twice; give each prompt its own.",
                                         shown_text(item.get_ref<const std::string&>(), 96)));
      out.push_back(item.get<std::string>());
    }
    return std::nullopt;
  }
  const std::string base =
      rid != body.end() && rid->is_string() ? rid->get<std::string>() : fallback;
  for (std::size_t i = 0; i < num_prompts; ++i)
    out.push_back(num_prompts == 1 ? base : fmt::format("{}_{}", base, i));
  return std::nullopt;
}

// As handle_health_generate, where the model gives vectors alone.
std::optional<Fault> probe_vector(const ServedModel& model,
                                  const std::shared_ptr<Responder>& responder) {
  Request probe;
  probe.prompt_ids = {0};
  probe.pooling = Pooling::kLast;
  probe.max_new_tokens = 0;
  probe.timeout_s = 20;
  const auto id = model.engine->submit(std::move(probe), [responder](Event&& event) {
    const bool is_well = event.finish == FinishReason::kLength;
    HttpReply reply;
    reply.body = R"({"status":"ok"})";
    responder->send(is_well ? std::move(reply) : error_reply(event.error));
  });
  return id ? std::nullopt : std::optional<Fault>(id.fault());
}

}  // namespace

std::optional<Fault> handle_generate(ServerState& state, const HttpRequest& request,
                                     const std::shared_ptr<Responder>& responder) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel* const model = *serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();

  bool batch = false;
  std::vector<std::vector<std::int32_t>> prompts;
  GenerationFields fields;
  const auto params = body->find("sampling_params");
  if (params != body->end() && !params->is_null()) {
    if (!params->is_object())
      return wrong_type("sampling_params", "an object", json_type_name(*params));
    if (auto fault =
            read_fields(*params, kSamplingApi, "sampling_params.", {model->vocab_size}, fields))
      return fault;
  }
  const auto rid = body->find("rid");
  Json rid_list;
  if (rid != body->end() && rid->is_array()) rid_list = std::exchange(*rid, nullptr);
  if (auto fault = read_fields(*body, kNativeApi, "", {model->vocab_size}, fields)) return fault;
  if (!rid_list.is_null()) (*body)["rid"] = std::move(rid_list);
  if (auto fault = check_model(*model, fields.model)) return fault;
  if (auto fault =
          read_input(*model, *body, fields.add_special_tokens.value_or(true), batch, prompts))
    return fault;

  NativeFormat::Settings settings;
  if (auto fault = read_rids(*body, prompts.size(), request.request_id, settings.ids)) return fault;
  // A batch with several names goes by its first.
  if (!fields.rid) fields.rid = settings.ids.front();
  const bool asked = fields.max_tokens.has_value();
  if (!asked) fields.max_tokens = kDefaultNewTokens;
  if (auto fault = check_minimum("sampling_params.min_new_tokens", fields)) return fault;
  GenerationPlan plan = make_plan(state, *model, request, fields);
  plan.prompts = std::move(prompts);
  settings.batch = batch;
  settings.num_choices = plan.request.num_choices;
  settings.logprobs = fields.want_logprobs.value_or(false);
  settings.num_top = static_cast<int>(fields.num_logprobs.value_or(0));
  settings.text_in_logprobs = fields.return_text_in_logprobs.value_or(false);
  if (settings.logprobs) {
    settings.logprob_start = static_cast<int>(fields.logprob_start_len.value_or(-1));
    plan.request.params.num_top_logprobs = settings.num_top;
    plan.request.logprob_start = settings.logprob_start;
  }
  for (const auto& ids : plan.prompts)
    if (settings.logprob_start >= static_cast<int>(ids.size()))
      return invalid_value("logprob_start_len",
                           fmt::format("`logprob_start_len` is {}, but the prompt has {} tokens.",
                                       settings.logprob_start, ids.size()));
  if (auto fault = fit_context(*model, plan, asked, "sampling_params.max_new_tokens")) return fault;
  if (auto fault = check_least(*model, plan, "sampling_params.min_new_tokens")) return fault;
  if (auto fault = add_grammar(*model, request, fields, plan)) return fault;
  tell_ignored(*responder, fields.ignored);
  plan.format = std::make_unique<NativeFormat>(settings, model, plan.prompts);
  start_generation(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

// One token through the whole engine; 200 when it comes.
std::optional<Fault> handle_health_generate(ServerState& state, const HttpRequest& request,
                                            const std::shared_ptr<Responder>& responder) {
  auto ready = state.ready();
  if (!ready) return ready.fault();
  const ServedModel* const model = *ready;
  if (!model->generates) return probe_vector(*model, responder);
  GenerationFields fields;
  fields.temperature = 0;
  fields.max_tokens = 1;
  fields.ignore_eos = true;
  fields.timeout = 20;
  GenerationPlan plan = make_plan(state, *model, request, fields);
  plan.prompts = {{0}};
  NativeFormat::Settings settings;
  settings.ids = {request.request_id};
  plan.format = std::make_unique<NativeFormat>(settings, model, plan.prompts);
  start_generation(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

}  // namespace sluice
