#include "cli/models/mix_choice.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/models/fit.h"
#include "cli/models/model_files.h"
#include "engine/rank_choice.h"

namespace sluice {
namespace {

constexpr int kHopperSm = 90;  // compute capability x 10
constexpr int kBatches[] = {1, 32, 64, 128};

Options options_of(const MixQuestion& question, const Mix& mix) {
  Options out = question.options;
  out.tp_size = mix.tp;
  out.pp_size = mix.pp;
  out.ep_size = mix.ep;
  out.dp_size = mix.dp;
  out.enable_dp_attention = mix.dp > 1;
  return out;
}

int share_of(int sequences, int groups) {
  return (sequences + groups - 1) / groups;
}

bool fits(const RankBytes& bytes, const MixAnswer& answer) {
  return bytes.weights + bytes.kv <= answer.available_bytes;
}

void predict(const CostModel& model, const MixQuestion& question, MixAnswer& answer) {
  std::set<int> batches(std::begin(kBatches), std::end(kBatches));
  batches.insert(question.concurrency);
  for (const int batch : batches)
    answer.decode.push_back(
        {.batch = batch,
         .fits = fits(rank_bytes(model, answer.mix, batch, question.context), answer),
         .cost = decode_step(model, answer.mix, batch, question.context)});
  answer.first_token = prefill(model, answer.mix, 1, question.context);
  // Several prompts for each group and stage, so that none of them waits.
  constexpr double kPromptsEach = 4;
  const Mix& mix = answer.mix;
  answer.prefill =
      prefill(model, mix, kPromptsEach * mix.replicas * mix.dp * mix.pp, question.context);
}

void weigh(const CostModel& model, const MixQuestion& question, MixAnswer& answer) {
  const auto memory = static_cast<double>(question.gpus.machine->memory_bytes);
  answer.bytes = rank_bytes(model, answer.mix, question.concurrency, question.context);
  answer.working_bytes = static_cast<double>(
      working_bytes(question.config, static_cast<int>(question.chunk_tokens),
                    share_of(question.concurrency, answer.mix.replicas * answer.mix.dp),
                    static_cast<int>(question.context)));
  answer.available_bytes = memory * question.memory_share;
  answer.fits =
      fits(answer.bytes, answer) && answer.working_bytes <= memory - answer.available_bytes;
}

template <class Value>
const MixAnswer* least(const std::vector<MixAnswer>& answers, Value&& value) {
  const MixAnswer* best = nullptr;
  for (const MixAnswer& answer : answers)
    if (answer.can_serve() && (best == nullptr || value(answer) < value(*best))) best = &answer;
  return best;
}

}  // namespace

namespace {

double plain_share(const WeightCount& part) {
  return part.matrices > 0 ? double(part.plain) / static_cast<double>(part.matrices) : 0;
}

std::vector<PlainShares> plain_shares(const ServingPlan& plan, const ModelConfig& config,
                                      const std::string& model) {
  std::vector<PlainShares> out;
  const std::optional<StoredMatrices> stored = stored_matrices(plan, config, model);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const ModelSize size = layer_size(config, layer, stored ? &*stored : nullptr);
    out.push_back({.attention = plain_share(size.attention),
                   .indexer = plain_share(size.indexer),
                   .mlp = plain_share(size.dense_mlp),
                   .shared_experts = plain_share(size.shared_experts),
                   .experts = plain_share(size.experts)});
  }
  return out;
}

}  // namespace

StoredTypes stored_types_of(const ServingPlan& plan, const ModelConfig& config,
                            const std::string& model) {
  const WeightForm form = weight_form(plan, config, model);
  const Numerics& numerics = plan.numerics();
  // Tensor cores multiply rows of int8 as fast as those of FP8.
  const bool is_fp8 =
      numerics.quantization == ops::Format::kFp8 ||
      (numerics.keep_fp8 && config.quantization && config.quantization->is_fp8()) ||
      (numerics.int_fragments && config.quantization && config.quantization->int8_rows);
  return {.linear_bits = form.linear_bits,
          .expert_bits = form.expert_bits,
          .head_bits = form.head_bits,
          .embedding_bits = form.embedding_bits,
          .kv_bits = 8.0 * static_cast<double>(dtype_size(numerics.kv())),
          .index_bits = 8.0 * static_cast<double>(dtype_size(numerics.index())),
          .plain_bits = form.plain_bits,
          .plain = plain_shares(plan, config, model),
          .is_fp8 = is_fp8};
}

Machine imagined_gpu() {
  return {.device = {DeviceKind::kCuda, 0}, .sm = kHopperSm, .num_threads = 1, .numa_nodes = {}};
}

MixQuestion mix_question(const Options& options, const ModelConfig& config,
                         const std::string& directory, const GpuSet& gpus, double context,
                         int concurrency) {
  const ServingPlan plan = resolve_or_throw(options, config, imagined_gpu());
  const Limits& limits = plan.runner.limits;
  return {.options = options,
          .config = config,
          .types = stored_types_of(plan, config, directory),
          .gpus = gpus,
          .context = context,
          .concurrency = concurrency,
          .chunk_tokens = static_cast<double>(limits.max_step_tokens - limits.max_running_requests),
          .memory_share = plan.runner.kv.mem_fraction_static};
}

const StepCost& MixAnswer::at(int batch) const {
  const auto found = std::ranges::find(decode, batch, &MixStep::batch);
  check(found != decode.end(), "a batch of {} was not asked for", batch);
  return found->cost;
}

std::vector<MixAnswer> answer_mixes(const MixQuestion& question) {
  const CostModel model{question.config, question.types, *question.gpus.machine,
                        calibrated_constants(), question.chunk_tokens};
  std::vector<MixAnswer> out;
  for (const Mix& mix : all_mixes(question.config, question.gpus.count)) {
    MixAnswer answer;
    answer.mix = mix;
    answer.options = options_of(question, mix);
    const Result<ServingPlan> plan = resolve(answer.options, question.config, imagined_gpu());
    if (!plan) answer.refusal = plan.fault().message;
    answer.divides =
        sharing_refusal(question.config, mix.tp, {.expert_groups = mix.ep, .dp_size = mix.dp})
            .empty() &&
        stage_refusal(question.config, mix.pp, mix.tp).empty();
    // More sequences than the engine runs by itself must be asked for.
    const int running = share_of(question.concurrency, mix.replicas * mix.dp);
    if (plan && plan->runner.limits.max_running_requests < running)
      answer.options.max_running_requests = running;
    weigh(model, question, answer);
    predict(model, question, answer);
    out.push_back(std::move(answer));
  }
  return out;
}

const MixAnswer* best_latency(const std::vector<MixAnswer>& answers) {
  return least(answers, [](const MixAnswer& answer) { return answer.at(1).seconds; });
}

const MixAnswer* best_throughput(const std::vector<MixAnswer>& answers, int concurrency) {
  return least(answers,
               [&](const MixAnswer& answer) { return -answer.at(concurrency).tokens_per_s; });
}

}  // namespace sluice
