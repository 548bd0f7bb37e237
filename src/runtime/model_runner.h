// Runs the batches of a rank: owns the weights, the KV pool, the attention back end, the sampler
// and the buffers.
//
//   auto rank = std::make_unique<Rank>(options.placement, deterministic, communicator);
//   std::unique_ptr<Model> model = load_rank_model(*rank, options, config, source, report);
//   ModelRunner runner(options, config, std::move(rank), std::move(model), report);
//   Pending pending = runner.launch(batch);      // the forward
//   runner.sample(pending);                      // choose tokens
//   BatchResult result = runner.collect(std::move(pending));
//
// Launches are collected in their order. With steps_in_flight of 2 the next batch may be launched
// before the last one is collected: tokens stay on the device until the host wants them; a batch
// that wants what only the host does (log-probabilities of prompts, hashes of logits) is sampled by
// the host at once. One thread. Terms and order of initialisation as in SGLang's ModelRunner.
//
// In a pipeline a runner has the layers of its stage (ModelOptions::layers). launch() takes the
// rows of the stage before it, and passes its own on; all stages launch the same batches. Only the
// last stage samples: elsewhere sample() does nothing, and the result is empty.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "batch/batch.h"
#include "batch/step_result.h"
#include "checkpoint/weight_source.h"
#include "config/model_config.h"
#include "models/registry.h"
#include "runtime/drafts/draft_runner.h"
#include "runtime/expert_mover.h"
#include "runtime/memory_plan.h"
#include "runtime/rank.h"
#include "runtime/rank_links.h"
#include "runtime/runner_options.h"
#include "runtime/steps/batch_buffers.h"
#include "runtime/steps/decode_graphs.h"
#include "runtime/steps/row_batch.h"
#include "sampling/sampler.h"
#include "tensor/context.h"

namespace sluice {

// Named after the step it belongs to; milliseconds and detail go into the start-up ledger.
using StartupReport =
    std::function<void(const std::string& step, double milliseconds, const std::string& detail)>;

// A batch that was launched. `batch` must live until it is collected.
struct Pending {
  const Batch* batch = nullptr;
  SampleState sampling;
  std::chrono::steady_clock::time_point filled{};  // when the batch lay in the buffers, for traces
  std::vector<float> pooled_states = {};           // BatchResult::pooled_states
  std::optional<DraftRunner::Kept> kept = {};      // states that the draft may need later
  std::optional<DraftRunner::Sent> round = {};     // drafts on their way, of a round
};

// The part of the model that the rank computes (its share of the matrices is that of its
// communicator). Throws Error: bad input, no resources.
std::unique_ptr<Model> load_rank_model(Rank& rank, const RunnerOptions& options,
                                       const ModelConfig& config, const WeightSource& source,
                                       const StartupReport& report);

class ModelRunner {
 public:
  // What is slow or may fail for lack of memory happens here, in SGLang's order: memory pools,
  // sampler, attention back end, warm-up, graphs. Throws Error: no resources. `config` must
  // outlive the runner. `links`: of a stage of a pipeline or a group of data-parallel
  // attention, where all ranks make their runners together.
  ModelRunner(const RunnerOptions& options, const ModelConfig& config, std::unique_ptr<Rank> rank,
              std::unique_ptr<Model> model, const StartupReport& report,
              const RankLinks& links = {});

  // Runs the copies and the forward of a batch. An IDLE batch is allowed. `groups`: those of all
  // groups of data-parallel attention (Step::dp); empty: all have batches like this one.
  // `expert_moves`: Step::expert_moves, which come before the forward.
  Pending launch(const Batch& batch, std::span<const Batch> groups = {},
                 std::span<const ExpertMove> expert_moves = {});
  // Reads the logits: tokens and log-probabilities. `inputs` are what came since the launch.
  void sample(Pending& pending, const SampleInputs& inputs = {});
  BatchResult collect(Pending pending);

  // Whether the batch that was launched last ran as a recorded graph.
  bool ran_graph() const { return ran_graph_; }
  // Rows of a step that may be a round (Batch::is_round), at most; 0: none may.
  std::int64_t max_round_rows() const;
  const MemoryPlan& memory_plan() const { return plan_; }
  const std::vector<PageGroupSpec>& groups() const { return groups_; }
  const Context& context() const { return ctx_; }
  bool is_last_stage() const { return layers_.end == config_.num_layers; }
  // By the thread that launches from now on: keeps it to its memory node, where there are several.
  void bind_caller() const { rank_->pool().bind_caller(); }
  AttentionBackend& attention() { return *attention_; }
  // Rows that a decode step, or a step with drafts, is padded to; empty: to none.
  std::vector<int> padded_rows(bool has_drafts) const;
  // Layers whose experts have places by a map; their counts grow with each step.
  std::span<const ExpertLayer> expert_layers() const { return model_->expert_layers; }
  // What the moves of the last launch took.
  double move_seconds() const { return expert_mover_ ? expert_mover_->seconds() : 0; }

 private:
  void init_memory_pool();
  void init_attention_backend();
  void kernel_warmup();
  void run_prompt(std::int64_t tokens);
  // How many layers run every kernel that the model's layers do.
  int representative_layers() const;
  // Rotations may follow the lengths of the step, which a graph cannot.
  bool can_be_recorded() const;
  void record_graphs(const StartupReport& report);
  std::int64_t measure_activations();
  // `only_logits`: see StageIO.
  void forward_rows(const ForwardBatch& fb, int layer_begin, int layer_end,
                    bool only_logits = false);
  // A step from its ids to its logits and, where tokens stay on the device, its tokens; with logit
  // edits where `has_edits`. `recorded` steps load their inputs themselves. `whole_logits`: the
  // batch wants no rows of logits but fb.logit_rows.
  void run_step(const ForwardBatch& fb, bool has_edits, bool recorded, bool whole_logits);
  // runner_drafts.cpp
  DraftLimits draft_limits() const;
  // Whether steps with drafts may be rounds: chains of one rank that read states, where runs of the
  // draft are recorded, or padded as those are.
  bool has_rounds() const;
  bool is_step_of_rounds(const ForwardBatch& fb) const {
    return limits_.has_rounds && fb.mode == ForwardMode::kTargetVerify &&
           fb.logit_rows.dim(0) == fb.num_tokens;
  }
  AttentionOptions draft_attention_options() const;
  void keep_states(const Tensor& states, StageIO& io) const;
  // Whether the recorded step of a batch copies its states for the draft.
  bool keeps_in_graph(const Batch& batch) const {
    return drafts_ && limits_.kept_rows > 0 && batch.max_drafts == 0 &&
           batch.mode == ForwardMode::kDecode && batch.num_tokens() > 0;
  }
  // One run of the draft in measure_activations(). `of_model`: for a draft without a back end.
  void measure_draft(Context& ctx, ForwardBatch fb, const KVPool& pool, AttentionBackend& of_model);
  void copy_pages(const Batch& batch);
  // How many rows each group has in the step.
  void set_rows_of_groups(const Batch& batch, std::span<const Batch> groups);
  // The size of the graph that all groups replay; 0: none.
  std::int64_t graph_size(const Batch& rows, std::span<const Batch> groups) const;
  // What all ranks compute of a step, although it is none of their own.
  bool takes_part() const { return ctx_.shares_model() || dp_.defined(); }
  // A group without work computes one row that nobody wants: kernels of a GPU have rows.
  bool pads_idle_groups() const { return dp_.defined() && ctx_.device.kind != DeviceKind::kCpu; }
  // Of a pipeline: the first `count` rows from the stage before this one, and to the next one.
  void receive_rows(std::int64_t count);
  void send_rows(std::int64_t count);
  // Whether a stage that begins with `layer` needs keys that an earlier layer has chosen.
  bool inherits_keys(int layer) const;
  std::int64_t num_logit_rows() const { return is_last_stage() ? limits_.max_logit_rows : 0; }
  // BatchResult::pooled_states of the batch that was launched last, once its logits are read: the
  // last norm is computed in the place of the residual stream.
  std::vector<float> pooled_states(const Batch& batch);
  // Rows [first, first + count) of the batch's logits, where the host reads them.
  Tensor host_logits(const Batch& batch, std::int64_t first, std::int64_t count);

  const RunnerOptions options_;
  const ModelConfig& config_;
  const LayerRange layers_;  // that the model has
  const RankLinks links_;
  DpGroups dp_;                        // with the rows of the step that was launched last
  bool is_linked_ = false;             // not while the runner is made
  std::array<StreamEvent, 2> passed_;  // behind the steps of a stage that does not sample, in turn
  std::size_t turn_ = 0;
  const std::unique_ptr<Rank> rank_;
  Context& ctx_;  // the rank's
  const Stream& stream_;
  BatchLimits limits_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ExpertMover> expert_mover_;  // null where experts stay where they are
  std::vector<PageGroupSpec> groups_;
  MemoryPlan plan_;
  std::unique_ptr<KVPool> kv_pool_;
  std::unique_ptr<Arena> arena_;
  Buffer activations_;   // what lives for a whole step: hidden states, inherited top-k, logits
  Tensor hidden_;        // [max_step_tokens, hidden] float32
  Tensor topk_indices_;  // [max_step_tokens, topk_width] int32; undefined without sparse attention
  Tensor logits_;        // [max_logit_rows, vocab] float32
  Buffer host_logits_;   // of a GPU's logits, for the sampler; empty on the CPU
  std::unique_ptr<BatchBuffers> buffers_;
  RowBatch row_batch_;
  Batch padding_;                         // without items
  std::unique_ptr<DecodeGraphs> graphs_;  // null without graphs
  bool ran_graph_ = false;
  std::vector<std::int32_t>
      spare_pages_;       // by group: a page behind the pool's that padding writes to
  Tensor target_states_;  // [max_step_tokens, target_width] float32, for drafts that read states
  bool keeps_states_ = true;  // in the step that was launched last
  int layers_run_ = 0;        // end of those of a step; not the last only while the runner is made
  std::unique_ptr<AttentionBackend> attention_;
  std::unique_ptr<AttentionBackend> draft_attention_;  // null where the model's serves the draft
  std::unique_ptr<DraftRunner> drafts_;                // null where nothing drafts
};

}  // namespace sluice
