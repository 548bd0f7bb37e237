// Runs a model in tests: batches are built without scheduler or runner, and pages come in shuffled
// order.
//
//   TestDriver driver(directory, {});
//   auto logits = driver.step({{.sequence = 0, .tokens = prompt}});       // [tokens][vocab]
//   logits = driver.step({{.sequence = 0, .tokens = {next}, .decode = true}});
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/load_config.h"
#include "checkpoint/weight_source.h"
#include "config/model_config.h"
#include "models/registry.h"

namespace sluice::testing {

inline std::string golden_models() {
  return source_dir() + "/tests/golden/models/";
}

inline Json read_json(const std::string& directory, const std::string& name) {
  const auto text = read_text_beneath(directory, name, 256 << 20);
  check(text.has_value(), "{}/{} is missing", directory, name);
  return parse_json_or_throw(*text, name);
}

struct DriverOptions {
  int threads = 1;
  std::string config_file = "config.json";
  Numerics numerics;
  AttentionOptions attention;
  std::int64_t max_tokens = 512;  // over all sequences; limits the pool
  CpuIsa isa = detect_cpu_isa();
  Communicator* communicator = nullptr;
  bool rope_by_length = false;
  bool index_hadamard = false;
  // Wraps the attention back end, for tests that watch or change its calls.
  std::function<std::unique_ptr<AttentionBackend>(std::unique_ptr<AttentionBackend>)> wrap = {};
};

// One sequence's part of a step. It continues at the end of the sequence's last step.
struct DriverItem {
  int sequence = 0;
  std::vector<int> tokens;
  bool decode = false;
  // indices of the tokens whose logits are computed; unset: all tokens, and hidden states too
  std::optional<std::vector<int>> wanted = {};
};

using Rows = std::vector<std::vector<float>>;

class TestDriver {
 public:
  TestDriver(const std::string& directory, const DriverOptions& options)
      : pool_(options.threads),
        config_(
            is_gguf_path(directory)
                ? load_model_config(directory)
                : parse_model_config(*read_text_beneath(directory, options.config_file, 1 << 20),
                                     options.config_file)),
        source_(WeightSource::checkpoint(directory, {.quantization = config_.quantization})),
        model_options_{.numerics = options.numerics,
                       .mla_expandable = options.attention.mla_prefill == MlaPrefill::kAuto,
                       .rope_by_length = options.rope_by_length,
                       .index_hadamard = options.index_hadamard} {
    ctx_.pool = &pool_;
    ctx_.cpu_isa = options.isa;
    ctx_.communicator = options.communicator;
    model_ = load_model(ctx_, config_, source_, model_options_);
    const std::vector<PageGroupSpec> groups = model_->kv_groups();
    const std::int64_t num_pages = options.max_tokens / kPageSize + 8;
    kv_ = std::make_unique<KVPool>(groups, std::vector<std::int64_t>(groups.size(), num_pages));
    backend_ =
        make_attention_backend(options.attention, attention_shape(config_, model_options_), *kv_);
    if (options.wrap) backend_ = options.wrap(std::move(backend_));
    std::mt19937 random(7);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      free_.emplace_back(num_pages);
      std::iota(free_[g].begin(), free_[g].end(), 0);
      std::shuffle(free_[g].begin(), free_[g].end(), random);
    }
  }

  const ModelConfig& config() const { return config_; }
  const Model& model() const { return *model_; }
  MethodCounts method_counts() const { return backend_->method_counts(); }
  int length(int sequence) const { return sequences_.at(sequence).length; }

  // The requested logits of the step, in the order of the items. `cuts` splits the layers into
  // several runs. `prepare` sees the StageIO of each run before it runs (the dry run's too).
  Rows step(const std::vector<DriverItem>& items, std::vector<int> cuts = {},
            const std::function<void(StageIO&)>& prepare = {}) {
    Step step = build(items);
    const ForwardBatch& fb = step.fb;
    cuts.push_back(config_.num_layers);
    Rows rows;
    std::int64_t peak = 0;
    for (const bool dry : {true, false}) {
      // The dry run measures the memory of the real run; one byte more is an error of the arena.
      Arena arena = dry ? Arena() : Arena(peak);
      ctx_.arena = &arena;
      ctx_.dry_run = dry;
      backend_->plan(ctx_, fb);
      Buffer hidden(fb.num_tokens * config_.hidden_size * 4),
          topk(fb.num_tokens * model_->topk_width() * 4),
          logits(fb.num_tokens * config_.vocab_size * 4);
      StageIO io;
      io.hidden = hidden.tensor(DType::kF32, {fb.num_tokens, config_.hidden_size});
      if (model_->topk_width() > 0)
        io.topk_indices = topk.tensor(DType::kI32, {fb.num_tokens, model_->topk_width()});
      const std::int64_t num_rows = fb.logit_rows.dim(0);
      io.logits = logits.tensor(DType::kF32, {num_rows, config_.vocab_size});
      io.only_logits = step.only_logits;
      for (const int cut : cuts) {
        io.layer_end = cut;
        if (prepare) prepare(io);
        model_->forward(ctx_, fb, *backend_, io);
        io.layer_begin = cut;
      }
      peak = arena.peak_bytes();
      if (dry) continue;
      const float* out = io.logits.ptr<float>();
      for (std::int64_t t = 0; t < num_rows; ++t)
        rows.emplace_back(out + t * config_.vocab_size, out + (t + 1) * config_.vocab_size);
    }
    return rows;
  }

 private:
  struct Sequence {
    int length = 0;
    std::vector<std::vector<int>> pages;  // by group
  };
  // Owns the memory to which a ForwardBatch points.
  struct Step {
    std::vector<std::int32_t> ids, positions, row_seq, seq_lens, prefix_lens, start_loc, logit_rows,
        state_slots;
    std::vector<std::vector<std::int32_t>> tables;
    std::vector<std::vector<std::int64_t>> slots;
    bool only_logits = false;
    ForwardBatch fb;
  };

  template <class T>
  static Tensor view(std::vector<T>& values) {
    return Tensor::dense(values.data(), dtype_of<T>, {static_cast<std::int64_t>(values.size())});
  }

  Step build(const std::vector<DriverItem>& items) {
    Step s;
    ForwardBatch& fb = s.fb;
    std::vector<PageGroupSpec> groups = model_->kv_groups();
    const bool has_states = !groups.empty() && groups.back().retention == Retention::kState;
    if (has_states) groups.pop_back();  // the state's number is the sequence's number
    s.start_loc.push_back(0);
    for (const DriverItem& item : items) {
      Sequence& sequence = sequences_[item.sequence];
      sequence.pages.resize(groups.size());
      const int first = sequence.length, first_row = static_cast<int>(s.ids.size());
      sequence.length += static_cast<int>(item.tokens.size());
      for (std::size_t g = 0; g < groups.size(); ++g)
        while (static_cast<int>(sequence.pages[g].size()) * kPageSize < sequence.length) {
          check(!free_[g].empty(), "the test's pool is too small: raise DriverOptions::max_tokens");
          sequence.pages[g].push_back(free_[g].back());
          free_[g].pop_back();
        }
      s.ids.insert(s.ids.end(), item.tokens.begin(), item.tokens.end());
      s.only_logits |= item.wanted.has_value();
      std::vector<int> wanted(item.tokens.size());
      std::iota(wanted.begin(), wanted.end(), 0);
      for (const int index : item.wanted.value_or(wanted))
        s.logit_rows.push_back(first_row + index);
      for (int p = first; p < sequence.length; ++p) {
        s.positions.push_back(p);
        s.row_seq.push_back(static_cast<std::int32_t>(s.seq_lens.size()));
      }
      s.prefix_lens.push_back(first);
      if (has_states) s.state_slots.push_back(item.sequence);
      s.seq_lens.push_back(sequence.length);
      s.start_loc.push_back(static_cast<std::int32_t>(s.ids.size()));
      if (!item.decode) fb.num_extend_seqs = static_cast<std::int64_t>(s.seq_lens.size());
      fb.max_seq_len = std::max<std::int64_t>(fb.max_seq_len, sequence.length);
      fb.max_extend_len =
          std::max<std::int64_t>(fb.max_extend_len, static_cast<std::int64_t>(item.tokens.size()));
    }
    fb.num_tokens = static_cast<std::int64_t>(s.ids.size());
    fb.num_seqs = static_cast<std::int64_t>(items.size());
    fb.mode = fb.num_extend_seqs == 0             ? ForwardMode::kDecode
              : fb.num_extend_seqs == fb.num_seqs ? ForwardMode::kExtend
                                                  : ForwardMode::kMixed;
    const std::int64_t max_pages = (fb.max_seq_len + kPageSize - 1) / kPageSize;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::vector<std::int32_t>& table = s.tables.emplace_back(fb.num_seqs * max_pages, -1);
      std::vector<std::int64_t>& slots = s.slots.emplace_back();
      for (std::size_t i = 0; i < items.size(); ++i) {
        const Sequence& sequence = sequences_[items[i].sequence];
        // Pages entirely before the window of the first row are not kept.
        const std::int64_t oldest =
            groups[g].span == 0 ? 0
                                : std::max<std::int64_t>(0, s.prefix_lens[i] - groups[g].span + 1);
        for (std::size_t p = static_cast<std::size_t>(oldest / kPageSize);
             p < sequence.pages[g].size(); ++p)
          table[i * static_cast<std::size_t>(max_pages) + p] = sequence.pages[g][p];
        for (int p = s.prefix_lens[i]; p < sequence.length; ++p)
          slots.push_back(std::int64_t{sequence.pages[g][static_cast<std::size_t>(p / kPageSize)]} *
                              kPageSize +
                          p % kPageSize);
      }
    }
    for (std::size_t g = 0; g < groups.size(); ++g)
      fb.groups.push_back({Tensor::dense(s.tables[g].data(), DType::kI32, {fb.num_seqs, max_pages}),
                           view(s.slots[g]),
                           {}});
    fb.input_ids = view(s.ids);
    fb.positions = view(s.positions);
    fb.row_seq = view(s.row_seq);
    fb.seq_lens = view(s.seq_lens);
    fb.extend_prefix_lens = view(s.prefix_lens);
    fb.extend_start_loc = view(s.start_loc);
    fb.logit_rows = view(s.logit_rows);
    if (has_states)
      fb.state_rows = {fb.extend_start_loc, fb.extend_prefix_lens, view(s.state_slots)};
    fb.host_seq_lens = s.seq_lens;
    fb.host_extend_prefix_lens = s.prefix_lens;
    fb.host_extend_start_loc = s.start_loc;
    return s;
  }

  ThreadPool pool_;
  Context ctx_;
  ModelConfig config_;
  WeightSource source_;
  ModelOptions model_options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KVPool> kv_;
  std::unique_ptr<AttentionBackend> backend_;
  std::vector<std::vector<int>> free_;
  std::map<int, Sequence> sequences_;
};

}  // namespace sluice::testing
