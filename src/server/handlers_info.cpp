// Routes that say what the server is and how it does: models, info, health, metrics, version,
// cache.
#include "base/build.h"
#include "base/json.h"
#include "server/api/handlers.h"
#include "server/core/errors.h"
#include "server/core/pooling_model.h"
#include "server/http/request_target.h"
#include "server/routes.h"
#include "telemetry/span_exporter.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {
namespace {

HttpReply json_reply(const Json& json) {
  HttpReply reply;
  reply.body = dump_json(json);
  return reply;
}

// Of the responses that are kept.
std::vector<ServerFigure> store_figures(const ResponseStore::Figures& store) {
  std::vector<ServerFigure> out = {
      {"sluice:response_store_memory_responses", "Responses that memory keeps", false,
       static_cast<double>(store.memory_responses)},
      {"sluice:response_store_memory_bytes", "Their bytes", false,
       static_cast<double>(store.memory_bytes)}};
  if (!store.has_file) return out;
  out.insert(out.end(),
             {{"sluice:response_store_file_responses", "Responses that the file keeps", false,
               static_cast<double>(store.file_responses)},
              {"sluice:response_store_file_bytes", "Their bytes", false,
               static_cast<double>(store.file_bytes)},
              {"sluice:response_store_waiting_bytes", "Bytes that wait to be written", false,
               static_cast<double>(store.waiting_bytes)},
              {"sluice:response_store_failures_total", "Tries to write that failed", true,
               static_cast<double>(store.write_failures)},
              {"sluice:response_store_unwritten_total", "Responses that the file never got", true,
               static_cast<double>(store.unwritten)}});
  return out;
}

void add_span_figures(const SpanExporter& spans, std::vector<ServerFigure>& out) {
  out.push_back({"sluice:traces_exported_total", "Requests whose spans a collector took", true,
                 static_cast<double>(spans.num_exported())});
  out.push_back({"sluice:traces_dropped_total", "Requests whose spans no collector took", true,
                 static_cast<double>(spans.num_dropped())});
}

// The fields of OpenAI, vLLM and Anthropic together.
Json model_json(const ServedModel& model, const std::string& name) {
  Json capabilities = Json::array();
  if (model.generates) {
    capabilities.push_back("completion");
    if (model.chat_template) capabilities.push_back("chat");
    if (!model.tool_parser.empty()) capabilities.push_back("tools");
    if (!model.reasoning_parser.empty()) capabilities.push_back("thinking");
  }
  if (model.pooling->refusal.empty()) capabilities.push_back("embedding");
  return Json{{"id", name},
              {"object", "model"},
              {"created", model.created},
              {"owned_by", "sluice"},
              {"root", name},
              {"parent", nullptr},
              {"max_model_len", model.engine->context_length()},
              {"context_length", model.engine->context_length()},
              {"capabilities", std::move(capabilities)},
              {"type", "model"},
              {"display_name", name},
              {"metadata", {{"priority_order", "lower first, with --schedule-policy priority"}}}};
}

}  // namespace

HttpReply handle_models(ServerState& state, const HttpRequest&) {
  const auto served = state.serving();
  if (!served) return error_reply(served.fault());
  const ServedModel* const model = *served;
  Json list = Json::array();
  for (const std::string& name : model->names) list.push_back(model_json(*model, name));
  return json_reply(Json{{"object", "list"}, {"data", std::move(list)}});
}

HttpReply handle_model(ServerState& state, const HttpRequest& request) {
  const auto served = state.serving();
  if (!served) return error_reply(served.fault());
  const std::string_view prefix = route_table()[request.route].path;
  std::string name = request.path.substr(prefix.size() - 1);
  if (!(*served)->serves(name)) name = without_extra_slashes(name);
  if (!(*served)->serves(name))
    return error_reply(
        Fault{404, "model_not_found", "model",
              fmt::format("The model {} is not served here.", shown_text(name, 96))});
  return json_reply(model_json(**served, name));
}

HttpReply handle_model_info(ServerState& state, const HttpRequest&) {
  const auto served = state.serving();
  if (!served) return error_reply(served.fault());
  const ServedModel& model = **served;
  const ModelConfig& config = model.engine->model_config();
  return json_reply(Json{
      {"model_path", model.engine->model_directory()},
      {"tokenizer_path",
       state.options.tokenizer.empty() ? model.engine->model_directory() : state.options.tokenizer},
      {"is_generation", model.generates},
      {"served_model_name", model.names[0]},
      {"architectures", {config.architecture}},
      {"model_type", config.model_type},
      {"vocab_size", config.vocab_size},
      {"num_layers", config.num_layers},
      {"hidden_size", config.hidden_size},
      {"context_length", model.engine->context_length()},
      {"dtype", model.engine->dtype_name()},
      {"weight_version", "default"},
      {"reasoning_parser",
       model.reasoning_parser.empty() ? Json(nullptr) : Json(model.reasoning_parser)},
      {"tool_call_parser", model.tool_parser.empty() ? Json(nullptr) : Json(model.tool_parser)}});
}

HttpReply handle_server_info(ServerState& state, const HttpRequest&) {
  const auto served = state.serving();
  if (!served) return error_reply(served.fault());
  const Engine& engine = *(*served)->engine;
  const EngineStats stats = engine.stats();
  const MemoryPlan& plan = engine.memory_plan();
  Json ledger = Json::array();
  for (const StartupLedger::Entry& entry : engine.ledger().entries)
    ledger.push_back(
        {{"step", entry.step}, {"milliseconds", entry.milliseconds}, {"detail", entry.detail}});
  Json methods = Json::object();
  const RunReport report = (*served)->engine->run_report(false);
  for (const auto& [name, count] : report.attention_methods) methods[name] = count;
  return json_reply(Json{
      {"version", kVersion},
      {"model_path", engine.model_directory()},
      {"served_model_name", (*served)->names[0]},
      {"dtype", engine.dtype_name()},
      {"context_length", engine.context_length()},
      {"max_total_num_tokens", stats.max_total_tokens},
      {"options", option_values(state.options)},
      {"memory_plan",
       {{"weight_bytes", plan.weight_bytes},
        {"activation_bytes", plan.activation_bytes},
        {"buffer_bytes", plan.buffer_bytes},
        {"kv_bytes", plan.kv_bytes},
        {"kv_bytes_per_token", plan.kv_bytes_per_token},
        {"max_total_tokens", plan.max_total_tokens},
        {"num_states", plan.num_states},
        {"state_bytes", plan.state_bytes},
        {"available_bytes", plan.available_bytes}}},
      {"startup", std::move(ledger)},
      {"internal_states", Json::array({Json{{"num_running_reqs", stats.running},
                                            {"num_queue_reqs", stats.queued},
                                            {"steps", stats.steps},
                                            {"mixed_steps", stats.mixed_steps},
                                            {"used_tokens", stats.used_tokens},
                                            {"cached_tokens", stats.cached_tokens},
                                            {"prompt_tokens", stats.prompt_tokens},
                                            {"generated_tokens", stats.generated_tokens},
                                            {"prefix_query_tokens", stats.prefix_query_tokens},
                                            {"prefix_hit_tokens", stats.prefix_hit_tokens},
                                            {"retracted", stats.retracted},
                                            {"spec_verify_ct", stats.verifications},
                                            {"spec_draft_token_num", stats.drafted_tokens},
                                            {"spec_accept_token_num", stats.accepted_tokens},
                                            {"evicted_pages", stats.evicted_pages},
                                            {"aborted", stats.aborted},
                                            {"numerics_errors", stats.numerics_errors},
                                            {"last_gen_throughput", stats.generation_throughput},
                                            {"attention_methods", std::move(methods)}}})}});
}

// vLLM's route of that name: what a client needs that tokenizes through /tokenize and /detokenize
// and renders the template by itself.
HttpReply handle_tokenizer_info(ServerState& state, const HttpRequest&) {
  const auto served = state.serving();
  if (!served) return error_reply(served.fault());
  const ServedModel& model = **served;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  const std::string chat_template = model.chat_template ? model.chat_template->source() : "";
  return json_reply(Json{{"bos_token", text_or_null(model.tokenizer->bos_token())},
                         {"eos_token", text_or_null(model.tokenizer->eos_token())},
                         {"vocab_size", model.tokenizer->size()},
                         {"model_max_length", model.engine->context_length()},
                         {"chat_template", text_or_null(chat_template)}});
}

HttpReply handle_flush_cache(ServerState& state, const HttpRequest&) {
  const auto served = state.serving();
  if (!served) return error_reply(served.fault());
  if (!(*served)->engine->flush_cache())
    return error_reply(
        Fault{400, "busy", "", "The cache can be flushed only while no request is running."});
  return json_reply(Json{{"success", true}, {"message", "The prefix cache is empty."}});
}

// Liveness and more: 503 until the model answers, so that scripts which wait on it do not start
// early.
HttpReply handle_health(ServerState& state, const HttpRequest&) {
  if (state.phase() == ServerPhase::kDraining) return json_reply(Json{{"status", "draining"}});
  const auto served = state.serving();
  if (!served) return error_reply(served.fault());
  return json_reply(Json{{"status", "ok"}});
}

HttpReply handle_ready(ServerState& state, const HttpRequest&) {
  const auto ready = state.ready();
  if (!ready) return error_reply(ready.fault());
  return json_reply(Json{{"status", "ready"}});
}

HttpReply handle_version(ServerState&, const HttpRequest&) {
  return json_reply(Json{{"version", kVersion}});
}

HttpReply handle_metrics(ServerState& state, const HttpRequest&) {
  HttpReply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  std::vector<ServerFigure> figures = store_figures(state.responses->figures());
  if (state.spans) add_span_figures(*state.spans, figures);
  if (const ServedModel* const model = state.model()) {
    const EngineStats stats = model->engine->stats();
    reply.body = state.metrics.text(&stats, figures);
  } else {
    reply.body = state.metrics.text(nullptr, figures);
  }
  return reply;
}

}  // namespace sluice
