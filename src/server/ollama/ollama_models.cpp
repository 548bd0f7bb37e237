// What the model is, in Ollama's words: /api/tags, /api/show, /api/ps, /api/version.
#include "base/build.h"
#include "base/hash.h"
#include "server/api/prompts.h"
#include "server/api/protocol_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "server/core/pooling_model.h"
#include "server/ollama/handlers.h"
#include "server/ollama/ollama_format.h"
#include "server/ollama/ollama_request.h"
#include "text/chat/chat_template.h"

namespace sluice {
namespace {

HttpReply json_reply(const Json& json) {
  HttpReply reply;
  reply.body = dump_json(json);
  return reply;
}

Json details(const ServedModel& model) {
  const std::string& family = model.engine->model_config().model_type;
  return Json{
      {"parent_model", ""},
      {"format", model.engine->model_directory().ends_with(".gguf") ? "gguf" : "safetensors"},
      {"family", family},
      {"families", Json::array({family})},
      {"parameter_size", ""},
      {"quantization_level", model.engine->dtype_name()}};
}

Json entry(const ServedModel& model, const std::string& name) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(model.engine->memory_plan().weight_bytes);
  // An id of name and size: nobody reads all weights for it.
  return Json{{"name", name},
              {"model", name},
              {"size", bytes},
              {"digest", fmt::format("{:016x}", hash_bytes(name, bytes))},
              {"details", details(model)}};
}

// A list of all names of the model.
template <class Extend>
HttpReply list_reply(ServerState& state, Extend&& extend) {
  const auto served = state.serving();
  if (!served) return error_reply(served.fault(), ErrorShape::kOllama);
  Json list = Json::array();
  for (const std::string& name : (*served)->names) {
    Json json = entry(**served, name);
    extend(**served, json);
    list.push_back(std::move(json));
  }
  return json_reply(Json{{"models", std::move(list)}});
}

// generation_config.json as lines of a Modelfile.
std::string parameter_lines(const GenerationConfig& config) {
  std::string out;
  const auto add = [&](const char* name, const auto& value) {
    if (value) out += fmt::format("{:<30} {}\n", name, *value);
  };
  add("temperature", config.temperature);
  add("top_k", config.top_k);
  add("top_p", config.top_p);
  add("min_p", config.min_p);
  add("repeat_penalty", config.repetition_penalty);
  add("num_predict", config.max_new_tokens);
  return out;
}

}  // namespace

HttpReply handle_ollama_tags(ServerState& state, const HttpRequest&) {
  return list_reply(state, [](const ServedModel& model, Json& json) {
    json["modified_at"] = ollama_time(model.created);
  });
}

HttpReply handle_ollama_ps(ServerState& state, const HttpRequest&) {
  return list_reply(state, [&](const ServedModel& model, Json& json) {
    json["expires_at"] = "9999-12-31T23:59:59Z";  // it stays as long as the server runs
    json["size_vram"] = state.options.device == "cuda" ? json["size"] : Json(0);
    json["context_length"] = model.engine->context_length();
  });
}

HttpReply handle_ollama_version(ServerState&, const HttpRequest&) {
  return json_reply(Json{{"version", kVersion}});
}

std::optional<Fault> handle_ollama_show(ServerState& state, const HttpRequest& request,
                                        const std::shared_ptr<Responder>& responder) {
  const auto served = state.serving();
  if (!served) return served.fault();
  const ServedModel& model = **served;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  std::optional<std::string> name;
  for (const char* key : {"model", "name"})  // the older spelling comes second
    if (!name)
      if (auto fault = read_member(*body, key, key, name)) return fault;
  if (!name || name->empty()) return missing_field("model");
  if (auto fault = check_model(model, ollama_model_name(*name))) return fault;
  std::optional<bool> is_verbose;
  if (auto fault = read_member(*body, "verbose", "verbose", is_verbose)) return fault;
  std::vector<std::string> ignored;
  if (is_verbose.value_or(false)) note_without_effect("verbose", ignored);
  static constexpr std::string_view kKnown[] = {"model", "name", "verbose"};
  note_unknown(*body, kKnown, "", ignored);
  tell_ignored(*responder, ignored);
  const ModelConfig& config = model.engine->model_config();
  const std::string& family = config.model_type;
  Json info{{"general.architecture", family}, {"general.file_type", model.engine->dtype_name()}};
  info[family + ".context_length"] = model.engine->context_length();
  info[family + ".embedding_length"] = config.hidden_size;
  info[family + ".block_count"] = config.num_layers;
  info[family + ".vocab_size"] = config.vocab_size;
  Json capabilities = Json::array({"completion"});
  if (!model.tool_parser.empty()) capabilities.push_back("tools");
  if (!model.reasoning_parser.empty()) capabilities.push_back("thinking");
  if (!model.generates) capabilities = Json::array();
  if (model.pooling->refusal.empty()) capabilities.push_back("embedding");
  responder->send(json_reply(
      Json{{"modelfile", fmt::format("FROM {}\n", model.names[0])},
           {"parameters", parameter_lines(model.engine->generation_config())},
           {"template", model.chat_template ? model.chat_template->source() : std::string()},
           {"details", details(model)},
           {"model_info", std::move(info)},
           {"capabilities", std::move(capabilities)},
           {"modified_at", ollama_time(model.created)}}));
  return std::nullopt;
}

}  // namespace sluice
