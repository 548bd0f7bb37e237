// POST /api/embed and /api/embeddings.
#include "server/api/prompts.h"
#include "server/api/request_fields.h"
#include "server/embeddings/handlers.h"
#include "server/embeddings/pooling_request.h"
#include "server/ollama/ollama_request.h"

namespace sluice {
namespace {

constexpr ProtocolField kEmbedFields[] = {
    own_field("model"),      own_field("input"),          own_field("truncate"),
    own_field("dimensions"), ignored_field("keep_alive"), ignored_field("options"),
};
constexpr ProtocolField kEmbeddingsFields[] = {
    own_field("model"),
    own_field("prompt"),
    ignored_field("keep_alive"),
    ignored_field("options"),
};

bool is_load(const Json& input) {
  return input.is_null() || input == "" || (input.is_array() && input.empty());
}

std::optional<Fault> run(ServerState& state, const HttpRequest& request,
                         const std::shared_ptr<Responder>& responder, bool is_old) {
  auto serving = serving_vectors(state);
  if (!serving) return serving.fault();
  const ServedModel* const model = *serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  const Json& name = member_or_null(*body, "model");
  if (name.is_null()) return missing_field("model");
  const std::string shown = name.is_string() ? name.get<std::string>() : std::string();
  if (name.is_string()) (*body)["model"] = ollama_model_name(shown);
  PoolingFields fields;
  const std::span<const ProtocolField> rows =
      is_old ? std::span<const ProtocolField>(kEmbeddingsFields) : kEmbedFields;
  if (auto fault = read_pooling_fields(*model, *body, rows, fields)) return fault;
  const std::string param = is_old ? "prompt" : "input";
  const Json& input = member_or_null(*body, param);
  Result<std::int64_t> dimensions = read_dimensions(*model->pooling, fields);
  if (!dimensions) return dimensions.fault();
  if (is_old && !input.is_null() && !input.is_string())
    return wrong_type(param, "a string", json_type_name(input));
  PoolingInputs inputs;
  if (!is_load(input)) {
    // Ollama knows texts only; a list of numbers would be token ids elsewhere.
    if (input.is_array())
      for (std::size_t i = 0; i < input.size(); ++i)
        if (!input[i].is_string())
          return wrong_type(fmt::format("{}.{}", param, i), "a string", json_type_name(input[i]));
    if (auto fault = read_pooling_inputs(state, *model, fields, input, param, inputs)) return fault;
  }
  tell_pooling(*responder, fields, inputs);
  const auto finish = [is_old, shown, dimensions = *dimensions,
                       pooling = model->pooling](PoolingJob::Vectors&& vectors) {
    finish_vectors(*pooling, dimensions, !is_old || pooling->normalizes, vectors.rows);
    HttpReply reply;
    std::string& out = reply.body;
    for (const std::vector<float>& row : vectors.rows) {
      if (!out.empty()) out += ',';
      append_vector(out, row, false);
    }
    if (is_old) {
      out = fmt::format(R"({{"embedding":{}}})", out.empty() ? "[]" : out);
      return reply;
    }
    out = fmt::format(R"({{"model":{},"embeddings":[{}],"total_duration":{},"load_duration":0,)"
                      R"("prompt_eval_count":{}}})",
                      dump_json(shown), out, static_cast<std::int64_t>(vectors.seconds * 1e9),
                      vectors.prompt_tokens);
    return reply;
  };
  // A request without a text asks for the model alone, which is there.
  if (inputs.list.empty()) {
    responder->send(finish({}));
    return std::nullopt;
  }
  PoolingJob::Plan plan;
  plan.inputs = std::move(inputs.list);
  plan.errors = ErrorShape::kOllama;
  plan.request = pooling_request(request, fields, model->pooling->pooling);
  plan.finish = finish;
  start_pooling(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

}  // namespace

std::optional<Fault> handle_ollama_embed(ServerState& state, const HttpRequest& request,
                                         const std::shared_ptr<Responder>& responder) {
  return run(state, request, responder, false);
}

std::optional<Fault> handle_ollama_embeddings(ServerState& state, const HttpRequest& request,
                                              const std::shared_ptr<Responder>& responder) {
  return run(state, request, responder, true);
}

std::span<const ProtocolField> ollama_embed_fields() {
  return kEmbedFields;
}

std::span<const ProtocolField> ollama_embeddings_fields() {
  return kEmbeddingsFields;
}

}  // namespace sluice
