// POST /v1/embeddings and /pooling.
#include <ctime>

#include "server/api/prompts.h"
#include "server/embeddings/handlers.h"
#include "server/embeddings/pooling_request.h"

namespace sluice {
namespace {

constexpr std::string_view kMedia = "this server reads text only.";
constexpr std::string_view kMessages = "a vector is of a text; send it as `input`.";

constexpr ProtocolField kFields[] = {
    own_field("model"),
    own_field("input"),
    own_field("encoding_format"),
    own_field("dimensions"),
    own_field("prompt_name"),
    own_field("normalize"),
    own_field("use_activation"),
    own_field("add_special_tokens"),
    own_field("truncate_prompt_tokens"),
    own_field("priority"),
    own_field("cache_salt"),
    own_field("timeout"),
    own_field("task"),
    ignored_field("user"),
    ignored_field("metadata"),
    ignored_field("request_id"),
    ignored_field("rid"),
    refused_field("messages", kMessages),
    refused_field("chat_template", kMessages),
    refused_field("chat_template_kwargs", kMessages),
    refused_field("image", kMedia),
    refused_field("images", kMedia),
    refused_field("modality", kMedia),
    refused_field("input_type", "name one of the model's prompts with `prompt_name`."),
    refused_field("lora_path", "adapters are not part of this version."),
    refused_field("embed_dtype", "numbers are float32."),
    refused_field("endianness", "numbers are little endian."),
    refused_field("mm_processor_kwargs", kMedia),
};

struct Answer {
  bool is_pooling = false;  // vLLM's /pooling
  bool base64 = false;
  bool is_matrix = false;  // a row for each token
  bool normalizes = false;
  std::int64_t dimensions = 0, width = 0;
  std::shared_ptr<const PoolingModel> pooling;
  std::string model, id;
};

std::string usage_of(const PoolingJob::Vectors& vectors) {
  return fmt::format(
      R"({{"prompt_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}})",
      vectors.prompt_tokens, vectors.prompt_tokens, vectors.cached_tokens);
}

void append_rows(std::string& out, std::vector<float>& states, const Answer& answer) {
  if (answer.base64) return append_vector(out, states, true);
  out += '[';
  const auto width = static_cast<std::size_t>(answer.width);
  for (std::size_t at = 0; at < states.size(); at += width) {
    if (at > 0) out += ',';
    append_vector(out, std::span(states).subspan(at, width), false);
  }
  out += ']';
}

// The fields in the order of the protocol; vectors are written as they come, since there may be
// millions of numbers.
HttpReply reply_of(PoolingJob::Vectors&& vectors, const Answer& answer) {
  if (!answer.is_matrix)
    finish_vectors(*answer.pooling, answer.dimensions, answer.normalizes, vectors.rows);
  HttpReply reply;
  std::string& out = reply.body;
  out = "{";
  if (answer.is_pooling)
    out += fmt::format(R"("id":{},"created":{},)", dump_json("pool-" + answer.id),
                       static_cast<std::int64_t>(std::time(nullptr)));
  out += R"("object":"list","data":[)";
  for (std::size_t i = 0; i < vectors.rows.size(); ++i) {
    if (i > 0) out += ',';
    out += answer.is_pooling ? fmt::format(R"({{"index":{},"object":"pooling","data":)", i)
                             : fmt::format(R"({{"object":"embedding","index":{},"embedding":)", i);
    if (answer.is_matrix) {
      append_rows(out, vectors.rows[i], answer);
    } else {
      append_vector(out, vectors.rows[i], answer.base64);
    }
    std::vector<float>().swap(vectors.rows[i]);
    out += '}';
  }
  out += fmt::format(R"(],"model":{},"usage":{}}})", dump_json(answer.model), usage_of(vectors));
  return reply;
}

// Matrices of all tokens are bounded as vectors are by the number of texts.
constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 24;

std::optional<Fault> run(ServerState& state, const HttpRequest& request,
                         const std::shared_ptr<Responder>& responder, bool is_pooling) {
  auto serving = serving_vectors(state);
  if (!serving) return serving.fault();
  const ServedModel* const model = *serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  PoolingFields fields;
  if (auto fault = read_pooling_fields(*model, *body, kFields, fields)) return fault;
  const std::string task = fields.task.value_or("embed");
  if (task != "embed" && !(is_pooling && task == "token_embed"))
    return invalid_value("task",
                         fmt::format("`task` must be `embed`{} here, not {}.",
                                     is_pooling ? " or `token_embed`" : "", shown_text(task)));
  Answer answer;
  answer.is_pooling = is_pooling;
  answer.is_matrix = task == "token_embed";
  answer.base64 = fields.base64;
  answer.normalizes = fields.normalize.value_or(model->pooling->normalizes);
  answer.pooling = model->pooling;
  answer.width = answer.is_matrix ? model->pooling->state_dimension : model->pooling->dimension;
  answer.model = fields.model.value_or("").empty() ? model->names[0] : *fields.model;
  answer.id = request.request_id;
  Result<std::int64_t> dimensions = read_dimensions(*model->pooling, fields);
  if (!dimensions) return dimensions.fault();
  answer.dimensions = *dimensions;
  if (answer.is_matrix && (fields.dimensions || fields.normalize))
    return unsupported(fields.dimensions ? "dimensions" : "normalize",
                       "states of tokens come as they are.");
  PoolingInputs inputs;
  if (auto fault = read_pooling_inputs(state, *model, fields, member_or_null(*body, "input"),
                                       "input", inputs))
    return fault;
  const std::int64_t numbers =
      answer.width *
      (answer.is_matrix ? inputs.num_tokens : static_cast<std::int64_t>(inputs.list.size()));
  if (numbers > kMaxNumbers)
    return Fault{400, "too_many_prompts", "input",
                 fmt::format("The answer would have {} numbers; {} are the most. Send fewer texts "
                             "at once.",
                             numbers, kMaxNumbers)};
  tell_pooling(*responder, fields, inputs);
  PoolingJob::Plan plan;
  plan.inputs = std::move(inputs.list);
  plan.request =
      pooling_request(request, fields, answer.is_matrix ? Pooling::kAll : model->pooling->pooling);
  if (answer.is_matrix)
    for (PoolingJob::Input& input : plan.inputs) input.pooled_from = 0;
  plan.finish = [answer = std::move(answer)](PoolingJob::Vectors&& vectors) {
    return reply_of(std::move(vectors), answer);
  };
  start_pooling(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

}  // namespace

std::optional<Fault> handle_embeddings(ServerState& state, const HttpRequest& request,
                                       const std::shared_ptr<Responder>& responder) {
  return run(state, request, responder, false);
}

std::optional<Fault> handle_pooling(ServerState& state, const HttpRequest& request,
                                    const std::shared_ptr<Responder>& responder) {
  return run(state, request, responder, true);
}

std::span<const ProtocolField> embeddings_fields() {
  return kFields;
}

}  // namespace sluice
