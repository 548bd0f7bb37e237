// POST /rerank, /score and /classify, in vLLM's shapes.
#include <algorithm>
#include <ctime>
#include <numeric>

#include "server/api/prompts.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/embeddings/handlers.h"
#include "server/embeddings/scores.h"

namespace sluice {
namespace {

constexpr std::string_view kLora = "adapters are not part of this version.";
constexpr std::string_view kCut = "texts are cut with `truncate_prompt_tokens`.";
constexpr std::string_view kTokens =
    "scores of tokens that are to be generated come from `logprobs` of /v1/completions.";

constexpr ProtocolField kRerankFields[] = {
    own_field("model"),
    own_field("query"),
    own_field("documents"),
    own_field("top_n"),
    own_field("return_documents"),
    own_field("return_text"),
    own_field("raw_scores"),
    own_field("use_activation"),
    own_field("truncate_prompt_tokens"),
    own_field("priority"),
    own_field("timeout"),
    ignored_field("user"),
    ignored_field("request_id"),
    ignored_field("rid"),
    refused_field("max_tokens_per_doc", kCut),
    refused_field("max_chunks_per_doc", kCut),
    refused_field("rank_fields", "documents are texts."),
    refused_field("instruct", "the model's own prompts stand before texts."),
    refused_field("lora_path", kLora),
};
constexpr ProtocolField kScoreFields[] = {
    own_field("model"),
    own_field("text_1"),
    own_field("text_2"),
    own_field("queries"),
    own_field("documents"),
    own_field("raw_scores"),
    own_field("use_activation"),
    own_field("truncate_prompt_tokens"),
    own_field("priority"),
    own_field("timeout"),
    ignored_field("user"),
    ignored_field("request_id"),
    ignored_field("rid"),
    refused_field("items", kTokens),
    refused_field("label_token_ids", kTokens),
    refused_field("lora_path", kLora),
};
constexpr ProtocolField kClassifyFields[] = {
    own_field("model"),
    own_field("input"),
    own_field("raw_scores"),
    own_field("use_activation"),
    own_field("add_special_tokens"),
    own_field("truncate_prompt_tokens"),
    own_field("priority"),
    own_field("timeout"),
    ignored_field("user"),
    ignored_field("request_id"),
    ignored_field("rid"),
    refused_field("messages", "a text is classified; send it as `input`."),
    refused_field("lora_path", kLora),
};

struct ScoreRequest {
  const ServedModel* model = nullptr;
  Json body;
  PoolingFields fields;
  std::string name, id;  // of the model in the answer; of the request
};

Result<ScoreRequest> read_request(const ServerState& state, const HttpRequest& request,
                                  std::span<const ProtocolField> rows) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  ScoreRequest out;
  out.model = *serving;
  out.body = std::move(*body);
  if (auto fault = read_pooling_fields(*out.model, out.body, rows, out.fields)) return *fault;
  out.name = out.fields.model.value_or("").empty() ? out.model->names[0] : *out.fields.model;
  out.id = request.request_id;
  return out;
}

HttpReply json_reply(const Json& json) {
  HttpReply reply;
  reply.body = dump_json(json);
  return reply;
}

// A text, or an object with a text as Jina has them.
std::optional<Fault> read_text(const Json& value, const std::string& path, std::string& out,
                               std::vector<std::string>& ignored) {
  const Json& text = value.is_object() ? member_or_null(value, "text") : value;
  if (!text.is_string())
    return wrong_type(path, "a string, or an object with `text`", json_type_name(value));
  out = text.get<std::string>();
  static constexpr std::string_view kKnown[] = {"text", "type"};
  if (value.is_object()) note_unknown(value, kKnown, path.substr(0, path.find('.')) + ".", ignored);
  return std::nullopt;
}

// A text or a list of texts.
std::optional<Fault> read_texts(const Json& value, const std::string& path,
                                std::vector<std::string>& out, std::vector<std::string>& ignored) {
  if (value.is_null()) return missing_field(path);
  if (!value.is_array()) return read_text(value, path, out.emplace_back(), ignored);
  if (value.empty())
    return Fault{400, "empty_prompt", path, fmt::format("`{}` is empty; give a text.", path)};
  if (value.size() > kMaxPoolingInputs)
    return Fault{400, "too_many_prompts", path,
                 fmt::format("`{}` has {} texts; at most {} are taken at once.", path, value.size(),
                             kMaxPoolingInputs)};
  for (std::size_t i = 0; i < value.size(); ++i)
    if (auto fault =
            read_text(value[i], fmt::format("{}.{}", path, i), out.emplace_back(), ignored))
      return fault;
  return std::nullopt;
}

}  // namespace

std::optional<Fault> handle_rerank(ServerState& state, const HttpRequest& request,
                                   const std::shared_ptr<Responder>& responder) {
  Result<ScoreRequest> read = read_request(state, request, kRerankFields);
  if (!read) return read.fault();
  std::string query;
  const Json& asked = member_or_null(read->body, "query");
  if (asked.is_null()) return missing_field("query");
  if (auto fault = read_text(asked, "query", query, read->fields.ignored)) return fault;
  const Json& listed = member_or_null(read->body, "documents");
  if (!listed.is_null() && !listed.is_array())
    return wrong_type("documents", "an array of texts", json_type_name(listed));
  std::vector<std::string> documents;
  if (auto fault = read_texts(listed, "documents", documents, read->fields.ignored)) return fault;
  std::vector<TextPair> pairs;
  for (const std::string& document : documents) pairs.push_back({&query, &document});
  const PoolingFields& fields = read->fields;
  // vLLM: 0 means all.
  const std::int64_t most = fields.top_n.value_or(0);
  const bool shows = fields.return_documents.value_or(fields.return_text.value_or(true));
  const auto shown =
      std::make_shared<std::vector<std::string>>(shows ? documents : std::vector<std::string>());
  const auto reply = [most, shown, name = read->name, id = read->id](const PairScores& scores) {
    std::vector<std::size_t> order(scores.scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [&](std::size_t i) { return scores.scores[i]; });
    if (most > 0 && std::cmp_less(most, order.size())) order.resize(static_cast<std::size_t>(most));
    Json results = Json::array();
    for (const std::size_t i : order) {
      Json entry{{"index", i}};
      if (!shown->empty()) entry["document"] = Json{{"text", (*shown)[i]}};
      entry["relevance_score"] = scores.scores[i];
      results.push_back(std::move(entry));
    }
    return json_reply(Json{{"id", "rerank-" + id},
                           {"model", name},
                           {"usage", score_usage(scores.prompt_tokens)},
                           {"results", std::move(results)}});
  };
  return score_pairs(state, read->model, request, responder, fields, pairs, reply);
}

std::optional<Fault> handle_score(ServerState& state, const HttpRequest& request,
                                  const std::shared_ptr<Responder>& responder) {
  Result<ScoreRequest> read = read_request(state, request, kScoreFields);
  if (!read) return read.fault();
  std::vector<std::string> sides[2];
  for (int side = 0; side < 2; ++side) {
    const char* newer = side == 0 ? "queries" : "documents";
    const std::string name = read->body.contains(newer) ? newer : side == 0 ? "text_1" : "text_2";
    if (auto fault =
            read_texts(member_or_null(read->body, name), name, sides[side], read->fields.ignored))
      return fault;
  }
  const std::size_t first = sides[0].size(), second = sides[1].size();
  if (first != 1 && first != second)
    return invalid_value(
        "text_1",
        fmt::format("There are {} and {} texts; give one and any number, or equally many.", first,
                    second));
  std::vector<TextPair> pairs;
  for (std::size_t i = 0; i < second; ++i)
    pairs.push_back({&sides[0][first == 1 ? 0 : i], &sides[1][i]});
  const auto reply = [name = read->name, id = read->id](const PairScores& scores) {
    Json data = Json::array();
    for (std::size_t i = 0; i < scores.scores.size(); ++i)
      data.push_back(Json{{"index", i}, {"object", "score"}, {"score", scores.scores[i]}});
    return json_reply(Json{{"id", "score-" + id},
                           {"object", "list"},
                           {"created", static_cast<std::int64_t>(std::time(nullptr))},
                           {"model", name},
                           {"data", std::move(data)},
                           {"usage", score_usage(scores.prompt_tokens)}});
  };
  return score_pairs(state, read->model, request, responder, read->fields, pairs, reply);
}

std::optional<Fault> handle_classify(ServerState& state, const HttpRequest& request,
                                     const std::shared_ptr<Responder>& responder) {
  Result<ScoreRequest> read = read_request(state, request, kClassifyFields);
  if (!read) return read.fault();
  const ServedModel* const model = read->model;
  if (model->pooling->score != ScoreKind::kHead)
    return Fault{400, "unsupported_task", "",
                 "No labels here: the model has no head that classifies texts."};
  PoolingFields& fields = read->fields;
  PoolingInputs inputs;
  if (auto fault = read_pooling_inputs(state, *model, fields, member_or_null(read->body, "input"),
                                       "input", inputs))
    return fault;
  const bool activates = fields.normalize.value_or(!fields.raw_scores.value_or(false));
  tell_pooling(*responder, fields, inputs);
  PoolingJob::Plan plan;
  plan.inputs = std::move(inputs.list);
  plan.request = pooling_request(request, fields, Pooling::kScores);
  plan.finish = [pooling = model->pooling, activates, name = read->name,
                 id = read->id](PoolingJob::Vectors&& vectors) {
    Json data = Json::array();
    for (std::size_t i = 0; i < vectors.rows.size(); ++i) {
      const std::vector<double> scores = label_scores(*pooling, vectors.rows[i], activates);
      const auto best = static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());
      data.push_back(Json{{"index", i},
                          {"label", pooling->labels[best]},
                          {"probs", scores},
                          {"num_classes", scores.size()}});
    }
    return json_reply(Json{{"id", "classify-" + id},
                           {"object", "list"},
                           {"created", static_cast<std::int64_t>(std::time(nullptr))},
                           {"model", name},
                           {"data", std::move(data)},
                           {"usage", score_usage(vectors.prompt_tokens)}});
  };
  start_pooling(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

std::span<const ProtocolField> rerank_fields() {
  return kRerankFields;
}

std::span<const ProtocolField> score_fields() {
  return kScoreFields;
}

std::span<const ProtocolField> classify_fields() {
  return kClassifyFields;
}

}  // namespace sluice
