#include "server/embeddings/scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "text/chat/chat_template.h"

namespace sluice {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    first += static_cast<double>(a[i]) * a[i];
    second += static_cast<double>(b[i]) * b[i];
  }
  return first == 0 || second == 0 ? 0 : product / std::sqrt(first * second);
}

// The tokens of both texts, joined as the tokenizer does.
std::optional<Fault> join_pair(const ServedModel& model, const PoolingFields& fields,
                               const TextPair& pair, std::size_t index, PoolingInputs& out) {
  const PoolingModel& pooling = *model.pooling;
  std::vector<std::int32_t> texts[2];
  const std::int64_t kept = fields.kept_tokens(pooling);
  for (int side = 0; side < 2; ++side) {
    const std::string& text = side == 0 ? *pair.first : *pair.second;
    if (text.empty()) continue;
    auto ids = encode_text(model, text, fmt::format("{}", index), false, kept > 0);
    // Text that normalises to nothing has no tokens, as an empty one.
    if (!ids && ids.fault().code != "empty_prompt") return ids.fault();
    if (ids) texts[side] = std::move(*ids);
  }
  const std::size_t special = pooling.pair.num_special();
  const std::size_t whole = texts[0].size() + texts[1].size() + special;
  if (kept > 0 && std::cmp_greater(whole, kept)) {
    if (std::cmp_greater_equal(special, kept))
      return invalid_value("truncate_prompt_tokens",
                           fmt::format("{} tokens leave no room for the texts beside the {} that "
                                       "stand around them.",
                                       kept, special));
    cut_longest_first(static_cast<std::size_t>(kept) - special, texts[0], texts[1]);
    out.num_cut += static_cast<std::int64_t>(whole) - kept;
  }
  PoolingJob::Input input;
  pooling.pair.join(texts[0], texts[1], input.ids, input.types);
  if (input.ids.empty()) return Fault{400, "empty_prompt", "", "The texts have no tokens."};
  if (std::cmp_greater(input.ids.size(), pooling.max_tokens))
    return Fault{400, "context_length_exceeded", "",
                 fmt::format("Pair {} has {} tokens; the model takes {}. Shorten it, or ask for "
                             "the cut with `truncate_prompt_tokens`.",
                             index, input.ids.size(), pooling.max_tokens)};
  out.num_tokens += static_cast<std::int64_t>(input.ids.size());
  out.list.push_back(std::move(input));
  return std::nullopt;
}

Fault too_many(std::size_t pairs) {
  return Fault{400, "too_many_prompts", "",
               fmt::format("There are {} pairs of texts; at most {} are taken at once.", pairs,
                           kMaxPoolingInputs)};
}

// By the head: a request for each pair.
std::optional<Fault> plan_head(const ServerState& state, const ServedModel& model,
                               const PoolingFields& fields, const std::vector<TextPair>& pairs,
                               PoolingInputs& inputs) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (auto fault = join_pair(model, fields, pairs[i], i, inputs)) return fault;
    if (auto fault = check_total(state, inputs.num_tokens, "")) return fault;
  }
  return std::nullopt;
}

// By two tokens: two requests for each pair, of which the second finds all of the first's tokens in
// the prefix cache.
std::optional<Fault> plan_tokens(const ServerState& state, const ServedModel& model,
                                 const std::vector<TextPair>& pairs, PoolingInputs& inputs) {
  const PoolingModel& pooling = *model.pooling;
  if (!model.chat_template)
    return Fault{400, "no_chat_template", "",
                 "The model has no chat template, in which it reads a query and a document."};
  const std::string* prompt =
      pooling.default_prompt.empty() ? nullptr : pooling.prompt(pooling.default_prompt);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    ChatInput chat;
    chat.messages = Json::array();
    if (prompt != nullptr && !prompt->empty())
      chat.messages.push_back(Json{{"role", "system"}, {"content", *prompt}});
    chat.messages.push_back(Json{{"role", "query"}, {"content", *pairs[i].first}});
    chat.messages.push_back(Json{{"role", "document"}, {"content", *pairs[i].second}});
    chat.kwargs = pooling.template_kwargs;
    chat.add_generation_prompt = pooling.adds_generation_prompt;
    Result<RenderedChat> text = model.chat_template->render(chat);
    if (!text) return text.fault();
    auto ids = encode_text(model, text->text, "", false, false);
    if (!ids) return ids.fault();
    const auto size = static_cast<int>(ids->size());
    if (size >= pooling.max_tokens)
      return Fault{400, "context_length_exceeded", "",
                   fmt::format("Pair {} has {} tokens; the model takes {}. Shorten it.", i, size,
                               pooling.max_tokens - 1)};
    for (const std::int32_t token : {pooling.yes_token, pooling.no_token}) {
      PoolingJob::Input input;
      input.ids = *ids;
      input.ids.push_back(token);
      input.logprob_start = size - 1;
      inputs.list.push_back(std::move(input));
    }
    inputs.num_tokens += size;
    if (auto fault = check_total(state, inputs.num_tokens, "")) return fault;
  }
  return std::nullopt;
}

// A model's prompt for one side of a search, by the names that sentence-transformers looks for.
std::optional<std::string> side_prompt(const PoolingModel& model, bool is_query) {
  if (is_query) return model.prompt("query") ? std::optional<std::string>("query") : std::nullopt;
  for (const std::string_view name : {"document", "passage", "corpus"})
    if (model.prompt(name) != nullptr) return std::string(name);
  return std::nullopt;
}

// By vectors: a request for each text that occurs on a side.
struct VectorPlan {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // indices of inputs
  PoolingInputs inputs;
};
std::optional<Fault> plan_cosine(const ServerState& state, const ServedModel& model,
                                 const PoolingFields& fields, const std::vector<TextPair>& pairs,
                                 VectorPlan& out) {
  std::map<const std::string*, std::size_t> places[2];
  std::size_t next = 0;
  for (int side = 0; side < 2; ++side) {
    Json texts = Json::array();
    for (const TextPair& pair : pairs) {
      const std::string* text = side == 0 ? pair.first : pair.second;
      if (places[side].emplace(text, next).second) {
        texts.push_back(*text);
        ++next;
      }
    }
    PoolingFields own = fields;
    own.prompt_name = side_prompt(*model.pooling, side == 0);
    const std::string param = side == 0 ? "query" : "documents";
    if (auto fault = read_pooling_inputs(state, model, own, texts, param, out.inputs)) return fault;
  }
  for (const TextPair& pair : pairs)
    out.pairs.emplace_back(places[0][pair.first], places[1][pair.second]);
  return std::nullopt;
}

}  // namespace

std::optional<Fault> score_pairs(ServerState& state, const ServedModel* model,
                                 const HttpRequest& request,
                                 const std::shared_ptr<Responder>& responder,
                                 const PoolingFields& fields, const std::vector<TextPair>& pairs,
                                 std::function<HttpReply(const PairScores&)> reply) {
  const std::shared_ptr<const PoolingModel> pooling = model->pooling;
  if (pooling->score == ScoreKind::kNone)
    return Fault{400, "unsupported_task", "",
                 fmt::format("No scores here: {}.", pooling->score_refusal)};
  if (pooling->score == ScoreKind::kHead && pooling->labels.size() != 1)
    return Fault{400, "unsupported_task", "",
                 fmt::format("The model's head has {} labels; a score needs one. Use /classify.",
                             pooling->labels.size())};
  if (pairs.size() > kMaxPoolingInputs) return too_many(pairs.size());
  const bool activates = fields.normalize.value_or(!fields.raw_scores.value_or(false));
  PoolingJob::Plan plan;
  if (pooling->score == ScoreKind::kTokens) {
    if (fields.truncate_tokens)
      return unsupported("truncate_prompt_tokens",
                         "a template stands around the texts; shorten them.");
    PoolingInputs inputs;
    if (auto fault = plan_tokens(state, *model, pairs, inputs)) return fault;
    tell_pooling(*responder, fields, inputs);
    plan.inputs = std::move(inputs.list);
    plan.request = pooling_request(request, fields, Pooling::kNone);
    plan.finish = [reply = std::move(reply), pooling, activates,
                   tokens = inputs.num_tokens](PoolingJob::Vectors&& vectors) {
      PairScores out;
      out.prompt_tokens = tokens;
      for (std::size_t i = 0; i + 1 < vectors.rows.size(); i += 2) {
        const double odds = static_cast<double>(vectors.rows[i].at(0)) - vectors.rows[i + 1].at(0);
        out.scores.push_back(activates && pooling->has_sigmoid ? sigmoid(odds) : odds);
      }
      return reply(out);
    };
  } else if (pooling->score == ScoreKind::kHead) {
    PoolingInputs inputs;
    if (auto fault = plan_head(state, *model, fields, pairs, inputs)) return fault;
    tell_pooling(*responder, fields, inputs);
    plan.inputs = std::move(inputs.list);
    plan.request = pooling_request(request, fields, Pooling::kScores);
    plan.finish = [reply = std::move(reply), pooling, activates](PoolingJob::Vectors&& vectors) {
      PairScores out;
      out.prompt_tokens = vectors.prompt_tokens;
      for (const std::vector<float>& row : vectors.rows)
        out.scores.push_back(activates && pooling->has_sigmoid ? sigmoid(row[0]) : row[0]);
      return reply(out);
    };
  } else {
    VectorPlan vectors;
    if (auto fault = plan_cosine(state, *model, fields, pairs, vectors)) return fault;
    tell_pooling(*responder, fields, vectors.inputs);
    plan.inputs = std::move(vectors.inputs.list);
    plan.request = pooling_request(request, fields, pooling->pooling);
    plan.finish = [reply = std::move(reply), pooling,
                   pairs = std::move(vectors.pairs)](PoolingJob::Vectors&& all) {
      finish_vectors(*pooling, 0, pooling->normalizes, all.rows);
      PairScores out;
      out.prompt_tokens = all.prompt_tokens;
      for (const auto& [first, second] : pairs)
        out.scores.push_back(cosine(all.rows[first], all.rows[second]));
      return reply(out);
    };
  }
  start_pooling(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

std::vector<double> label_scores(const PoolingModel& model, std::span<const float> logits,
                                 bool activates) {
  std::vector<double> out(logits.begin(), logits.end());
  if (!activates) return out;
  if (model.is_multi_label || out.size() == 1) {
    for (double& value : out) value = sigmoid(value);
    return out;
  }
  const double most = *std::ranges::max_element(out);
  double sum = 0;
  for (double& value : out) sum += value = std::exp(value - most);
  for (double& value : out) value /= sum;
  return out;
}

Json score_usage(std::int64_t prompt_tokens) {
  return Json{{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}};
}

}  // namespace sluice
