#include "cost/step_cost.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

// Adds up what the parts take.
class Tally {
 public:
  explicit Tally(const CostModel& model) : model_(model) {}

  void add(const PartRow& part, const PartInputs& inputs, double times = 1) {
    if (!part.is_in(inputs.config, inputs.layer)) return;
    kernels_.clear();
    part.add_kernels(inputs, kernels_);
    double seconds = 0;
    for (const KernelWork& kernel : kernels_)
      seconds += kernel_seconds(kernel, model_.machine, model_.constants);
    add(part.name, times * seconds);
  }
  void add(std::string_view name, double seconds) {
    total_ += seconds;
    const auto found = std::ranges::find(parts_, name, &PartSeconds::name);
    if (found != parts_.end())
      found->seconds += seconds;
    else
      parts_.push_back({name, seconds});
  }

  double total() const { return total_; }
  const std::vector<PartSeconds>& parts() const { return parts_; }

 private:
  const CostModel& model_;
  std::vector<KernelWork> kernels_;
  double total_ = 0;
  std::vector<PartSeconds> parts_;
};

// All stages of one step, and after it the layers of the last tokens alone.
void add_step(const CostModel& model, const StepShape& step, Tally& tally) {
  const ModelConfig& config = model.config;
  // Of a prompt's last layer only the tokens with logits go beyond keys and values. Groups that
  // share a feed-forward layer compute all of them.
  StepShape last = step;
  if (step.prompt.rows > 0 && step.mix.dp == 1) {
    last.decode.sequences += step.prompt.sequences;
    last.decode.rows += step.prompt.sequences;
    last.decode.keys = std::max(step.decode.keys, step.prompt.keys);
    last.prompt = {};
    last.all_rows = last.decode.rows;
  }
  tally.add(embedding_part(), {config, 0, step});
  for (int layer = 0; layer < config.num_layers; ++layer)
    for (const PartRow& part : layer_parts())
      tally.add(part, {config, layer, layer + 1 < config.num_layers ? step : last});
  tally.add(head_part(), {config, 0, step});
  const KernelWork send{.kind = KernelKind::kSend,
                        .message_bytes = step.rows() * config.hidden_size * 4.0,
                        .ranks = 2};
  if (step.mix.pp > 1)
    tally.add("stages", (step.mix.pp - 1) * kernel_seconds(send, model.machine, model.constants));
}

// Layers [begin, end) of a stage; the first stages have those that are left over.
struct Stage {
  int begin = 0, end = 0;
};
Stage stage_of(int num_layers, int stage, int num_stages) {
  const int each = num_layers / num_stages, rest = num_layers % num_stages;
  const int begin = stage * each + std::min(stage, rest);
  return {begin, begin + each + (stage < rest ? 1 : 0)};
}

double matrix_bytes(const CostModel& model, const Mix& mix, const PartRow& part, int layer) {
  if (!part.is_in(model.config, layer)) return 0;
  std::vector<Matrix> matrices;
  part.add_matrices(model.config, layer, matrices);
  double bytes = 0;
  for (const Matrix& matrix : matrices) {
    // A group of experts may have one more than the others.
    const double count = matrix.sharing == Sharing::kExperts && mix.ep > 1
                             ? std::ceil(matrix.count / mix.ep) * mix.ep
                             : matrix.count;
    bytes += count * matrix.outputs * matrix.inputs * rank_share(matrix, mix, model.config, layer) *
             element_bits(matrix.stored, model.types, layer) / 8;
  }
  return bytes;
}

}  // namespace

StepCost decode_step(const CostModel& model, const Mix& mix, double batch, double context) {
  const double of_server = std::ceil(batch / mix.replicas);
  // Sequences are dealt to as many steps as there are stages.
  const double steps = std::min<double>(mix.pp, of_server);
  const double of_step = std::ceil(of_server / steps);
  const double of_group = std::ceil(of_step / mix.dp);
  Tally tally(model);
  add_step(model,
           {.mix = mix,
            .types = model.types,
            .decode = {.sequences = of_group, .rows = of_group, .keys = context},
            .prompt = {},
            .all_rows = of_step,
            .logit_rows = of_group},
           tally);
  return {.seconds = tally.total(), .tokens_per_s = batch / tally.total(), .parts = tally.parts()};
}

StepCost prefill(const CostModel& model, const Mix& mix, double prompts, double length) {
  const double of_server = std::ceil(prompts / mix.replicas);
  const double of_group = std::ceil(of_server / mix.dp);
  // Short prompts fill a step together; a long one takes several steps.
  const double parts = std::max(1.0, std::ceil(length / model.chunk_tokens));
  double num_steps = 0;
  Tally tally(model);
  for (int part = 0; part < parts; ++part) {
    const double begin = part * model.chunk_tokens;
    const double end = std::min(length, begin + model.chunk_tokens);
    const double together =
        parts > 1 ? 1 : std::min(of_group, std::max(1.0, model.chunk_tokens / length));
    const double rows = together * (end - begin), steps = of_group / together;
    // Prompts that have their first token decode beside the others: half of them in the mean.
    const double ahead = (of_group - together) / 2;
    Tally one(model);
    add_step(
        model,
        {.mix = mix,
         .types = model.types,
         .decode = {.sequences = ahead, .rows = ahead, .keys = length},
         .prompt = {.sequences = together, .rows = rows, .keys = begin + (end - begin + 1) / 2},
         .all_rows = (rows + ahead) * std::min<double>(mix.dp, of_server),
         .logit_rows = together + ahead},
        one);
    num_steps += steps;
    for (const PartSeconds& seconds : one.parts()) tally.add(seconds.name, steps * seconds.seconds);
  }
  // Stages work on different steps at the same time, once all of them have one.
  const double filled = (num_steps + mix.pp - 1) / (num_steps * mix.pp);
  StepCost out{.seconds = tally.total() * filled, .tokens_per_s = 0, .parts = tally.parts()};
  for (PartSeconds& part : out.parts) part.seconds *= filled;
  out.tokens_per_s = prompts * length / out.seconds;
  return out;
}

RankBytes rank_bytes(const CostModel& model, const Mix& mix, double sequences, double context) {
  const ModelConfig& config = model.config;
  const double of_server = std::ceil(sequences / mix.replicas);
  const double of_group = std::ceil(of_server / mix.dp);
  RankBytes out;
  for (int stage = 0; stage < mix.pp; ++stage) {
    const auto [begin, end] = stage_of(config.num_layers, stage, mix.pp);
    RankBytes own;
    if (stage == 0 || config.tie_word_embeddings)
      own.weights +=
          stage == 0 || stage == mix.pp - 1 ? matrix_bytes(model, mix, embedding_part(), 0) : 0;
    if (stage == mix.pp - 1) own.weights += matrix_bytes(model, mix, head_part(), 0);
    for (int layer = begin; layer < end; ++layer) {
      for (const PartRow& part : layer_parts())
        own.weights += matrix_bytes(model, mix, part, layer);
      const LayerConfig attended = config.layer(layer);
      const double span = attended.window > 0 ? attended.window : attended.chunk;
      // Layers with a window have no more pages than twice what their sequences hold.
      const double whole = of_group * context;
      const double kept =
          span > 0 ? std::min(whole, 2 * (of_group * span + model.chunk_tokens)) : whole;
      own.kv += kept * kv_bytes_of_token(config, layer, mix, model.types) +
                of_group * state_bytes_of_sequence(config, layer);
    }
    if (own.weights + own.kv > out.weights + out.kv) out = own;
  }
  return out;
}

double matrix_elements(const ModelConfig& config) {
  double sum = 0;
  std::vector<Matrix> matrices;
  embedding_part().add_matrices(config, 0, matrices);
  head_part().add_matrices(config, 0, matrices);
  for (int layer = 0; layer < config.num_layers; ++layer)
    for (const PartRow& part : layer_parts())
      if (part.is_in(config, layer)) part.add_matrices(config, layer, matrices);
  for (const Matrix& matrix : matrices) sum += matrix.count * matrix.outputs * matrix.inputs;
  return sum;
}

}  // namespace sluice
