// A model of the installed `transformers`. The Python side (bridge.py) runs it on this program's
// weights, GEMMs and paged attention. Whole steps only: its layers cannot be cut into stages, and
// no step is captured in a graph. `docs/decisions/023-transformers-plugin.md` says what it cannot
// run.
//
// Sources: the attention-function table and `AutoModelForCausalLM.from_config` of transformers 5.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layers/linear.h"
#include "models/model.h"
#include "models/registry.h"
#include "plugins/transformers/host.h"

namespace sluice {

class ForeignModel final : public Model {
 public:
  ForeignModel(const ModelConfig& config, DType kv_dtype) : config_(config), kv_dtype_(kv_dtype) {}

  ~ForeignModel() override;
  ForeignModel(const ForeignModel&) = delete;
  ForeignModel& operator=(const ForeignModel&) = delete;

  // Called once, first: starts Python, builds the model and reads its weights. Error{kBadInput}: no
  // Python or packages, a class that transformers does not know or the plugin cannot run, tensors
  // that the checkpoint lacks.
  void build(Context& ctx, const WeightSource& source, const ModelOptions& options);

  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               StageIO& io) override;
  std::vector<PageGroupSpec> kv_groups() const override;
  std::int64_t weight_bytes() const override { return store_.bytes(); }

 private:
  struct Layer {
    std::int64_t heads = 0, kv_heads = 0, dim = 0, window = 0;
    double scale = 0, softcap = 0;
    bool sinks = false;
  };
  // The state of the running step, for the functions of SluiceHost.
  struct Running {
    Context* ctx = nullptr;
    const ForwardBatch* fb = nullptr;
    AttentionBackend* backend = nullptr;
  };

  SluiceHost host_table();
  template <class Work>
  static std::int32_t guarded(void* self, Work&& work);
  // Throws the failure of the Python side or of a host function.
  [[noreturn]] void give_up(std::string_view doing);

  Tensor take(std::int64_t elements, DType dtype);
  void fill(std::string_view name, DType dtype, std::vector<std::int64_t> shape, WeightInit init,
            void* address);
  std::int64_t shape_of(std::string_view name, std::int64_t* extents) const;
  void read(std::string_view name, DType dtype, std::int64_t first, std::int64_t count,
            void* address) const;
  std::int64_t declare_linear(std::string_view name, std::int64_t rows, std::int64_t columns,
                              bool bias);
  void attend(const SluiceAttention& call);
  void rehearse(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend) const;

  ModelConfig config_;
  DType kv_dtype_{};
  WeightLoader* loader_ = nullptr;        // set while weights are declared
  const WeightSource* source_ = nullptr;  // set as long as loader_
  std::vector<std::string> names_;  // names of the checkpoint's tensors, set as long as loader_
  std::vector<Linear> linears_;
  std::vector<Layer> layers_;
  WeightStore store_;
  SluiceHost host_{};
  std::int32_t (*probe_)() = nullptr;
  std::int32_t (*step_)(const SluiceStep*) = nullptr;
  void (*close_)(void*) = nullptr;
  std::int64_t hidden_size_ = 0, vocab_size_ = 0;
  std::string description_;
  Running running_;
  std::exception_ptr failure_;  // failure of a host function
  std::string python_failure_;
};

}  // namespace sluice
