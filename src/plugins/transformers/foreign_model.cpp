#include "plugins/transformers/foreign_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/backend.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "models/plugin.h"
#include "ops/kv.h"
#include "plugins/transformers/bridge_source.h"
#include "plugins/transformers/python_api.h"

namespace sluice {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                            DType::kI32, DType::kU8,   DType::kBool};
constexpr WeightInit kInits[] = {WeightInit::kNormal, WeightInit::kOnes, WeightInit::kZeros};

DType type_of(std::int32_t code) {
  check(code >= 0 && code < std::ssize(kTypes), "type {} of the bridge", code);
  return kTypes[code];
}

std::string settings_of(const Context& ctx, const ModelConfig& config,
                        const ModelOptions& options) {
  const FallbackConfig& fallback = *config.fallback;
  return dump_json({{"directory", fallback.directory},
                    {"overrides", config.override_args.empty()
                                      ? Json::object()
                                      : parse_json_or_throw(config.override_args, "overrides")},
                    {"trust_remote_code", fallback.trust_remote_code},
                    {"dtype", dtype_name(options.numerics.compute)},
                    {"context_length", options.context_length > 0 ? options.context_length
                                                                  : config.max_position_embeddings},
                    {"threads", ctx.pool == nullptr ? 1 : ctx.pool->size()}});
}

// find_python(), with the reason why Python is needed added to its errors.
PythonInstallation python_for(const ModelConfig& config) {
  const std::vector<std::string_view> native = supported_architectures();
  if (std::ranges::find(native, config.architecture) != native.end()) return find_python();
  try {
    return find_python();
  } catch (const Error& error) {
    fail(error.kind(), "the architecture {} is not built in (the nearest that is: {}), and {}",
         config.architecture, nearest_architecture(config.architecture), error.message());
  }
}

}  // namespace

// Runs `work` for the Python side. An exception is kept here; Python sees only that there was one.
template <class Work>
std::int32_t ForeignModel::guarded(void* self, Work&& work) {
  auto& model = *static_cast<ForeignModel*>(self);
  try {
    work(model);
    return 0;
  } catch (...) {
    model.failure_ = std::current_exception();
    return 1;
  }
}

SluiceHost ForeignModel::host_table() {
  SluiceHost host{};
  host.self = this;
  host.has = [](void* self, const char* name, std::int32_t by_config) -> std::int32_t {
    return static_cast<ForeignModel*>(self)->loader_->root().has(name, by_config != 0) ? 1 : 0;
  };
  host.name = [](void* self, std::int64_t index) -> const char* {
    const std::vector<std::string>& names = static_cast<ForeignModel*>(self)->names_;
    return static_cast<std::size_t>(index) < names.size()
               ? names[static_cast<std::size_t>(index)].c_str()
               : nullptr;
  };
  host.shape = [](void* self, const char* name, std::int64_t* extents) -> std::int32_t {
    std::int64_t rank = -1;
    const std::int32_t status =
        guarded(self, [&](ForeignModel& m) { rank = m.shape_of(name, extents); });
    return status == 0 ? static_cast<std::int32_t>(rank) : -1;
  };
  host.read = [](void* self, const char* name, std::int32_t dtype, std::int64_t first,
                 std::int64_t count, void* address) {
    return guarded(self,
                   [&](ForeignModel& m) { m.read(name, type_of(dtype), first, count, address); });
  };
  host.take = [](void* self, std::int64_t elements, std::int32_t dtype, void** address) {
    return guarded(self,
                   [&](ForeignModel& m) { *address = m.take(elements, type_of(dtype)).data; });
  };
  host.fill = [](void* self, const char* name, std::int32_t dtype, const std::int64_t* shape,
                 std::int32_t rank, std::int32_t init, void* address) {
    return guarded(self, [&](ForeignModel& m) {
      check(init >= 0 && init < 3, "initialisation {} of the bridge", init);
      m.fill(name, type_of(dtype), {shape, shape + rank}, kInits[init], address);
    });
  };
  host.linear = [](void* self, const char* name, std::int64_t rows, std::int64_t columns,
                   std::int32_t bias, std::int64_t* handle) {
    return guarded(
        self, [&](ForeignModel& m) { *handle = m.declare_linear(name, rows, columns, bias != 0); });
  };
  host.apply = [](void* self, std::int64_t handle, std::int64_t tokens, const void* x,
                  std::int32_t dtype, float* out) {
    return guarded(self, [&](ForeignModel& m) {
      const Linear& linear = m.linears_.at(static_cast<std::size_t>(handle));
      linear.forward(
          *m.running_.ctx,
          Tensor::dense(const_cast<void*>(x), type_of(dtype), {tokens, linear.columns()}),
          Tensor::dense(out, DType::kF32, {tokens, linear.rows()}));
    });
  };
  host.attend = [](void* self, const SluiceAttention* call) {
    return guarded(self, [&](ForeignModel& m) { m.attend(*call); });
  };
  host.describe = [](void* self, const SluiceAttention* call) {
    return guarded(self, [&](ForeignModel& m) {
      m.layers_.push_back({call->heads, call->kv_heads, call->dim, call->window, call->scale,
                           call->softcap, call->sinks != nullptr});
    });
  };
  host.built = [](void* self, std::int64_t hidden_size, std::int64_t vocab_size,
                  const char* description, std::int32_t (*probe)(),
                  std::int32_t (*step)(const SluiceStep*), void (*close)(void*)) {
    return guarded(self, [&](ForeignModel& m) {
      m.hidden_size_ = hidden_size;
      m.vocab_size_ = vocab_size;
      m.description_ = description;
      m.probe_ = probe;
      m.step_ = step;
      m.close_ = close;
    });
  };
  host.fail = [](void* self, const char* message) {
    static_cast<ForeignModel*>(self)->python_failure_ = message;
  };
  return host;
}

void ForeignModel::give_up(std::string_view doing) {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  fail(ErrorKind::kBadInput, "{} of the Transformers fallback: {}", doing,
       python_failure_.empty() ? "the Python side gave no reason" : python_failure_);
}

void ForeignModel::build(Context& ctx, const WeightSource& source, const ModelOptions& options) {
  require(ctx.device.kind == DeviceKind::kCpu,
          "the Transformers fallback runs on a CPU; add --device cpu, or take a model whose "
          "architecture is built in");
  const PythonInstallation python = python_for(config_);
  WeightLoader loader(source, options.numerics, config_.dtype, ctx);
  loader_ = &loader;
  source_ = &source;
  names_ = source.names();
  host_ = host_table();
  run_python(python, kPythonModules, &host_, settings_of(ctx, config_, options));
  if (step_ == nullptr) {
    python_failure_ += fmt::format(". The nearest architecture that is built in is {}",
                                   nearest_architecture(config_.architecture));
    give_up("building the model");
  }
  require(hidden_size_ == config_.hidden_size && vocab_size_ == config_.vocab_size,
          "config.json says hidden_size {} and vocab_size {}, the class of transformers {} and {}",
          config_.hidden_size, config_.vocab_size, hidden_size_, vocab_size_);
  loader.finish([](std::string_view) { return true; });  // weights.py refuses unused tensors
  loader_ = nullptr;
  source_ = nullptr;
  names_.clear();
  store_ = loader.take_store();

  // With the weights loaded, a pass over one token discovers the attention layers, and a sample is
  // compared with the class itself (check.py).
  Context probe = ctx;
  Arena arena(std::int64_t{64} << 20);
  probe.arena = &arena;
  running_ = {.ctx = &probe};
  if (probe_() != 0) {
    python_failure_ +=
        fmt::format(". So {} cannot run there; the nearest architecture that is built in is {}",
                    config_.architecture, nearest_architecture(config_.architecture));
    give_up("the first token");
  }
  running_ = {};
  require(!layers_.empty(),
          "{} never called the attention function of transformers; its attention cannot be paged",
          config_.architecture);
  require(static_cast<int>(layers_.size()) <= config_.num_layers,
          "{} calls attention {} times in {} layers", config_.architecture, layers_.size(),
          config_.num_layers);
  for (const Layer& layer : layers_)
    require(layer.dim <= ops::kMaxValueDim && layer.heads % layer.kv_heads == 0,
            "{} has {} heads of {} dims over {} key heads; the kernels take {} dims at most, and "
            "whole groups of heads",
            config_.architecture, layer.heads, layer.dim, layer.kv_heads, ops::kMaxValueDim);
  log_warning(
      "{} runs through the Transformers fallback: {} ({}). Attention, the KV cache and {} matrix "
      "products are Sluice's "
      "own; other modules run in Python, and there are no stages, graphs or speculation{}{}",
      config_.architecture, description_, python.executable, linears_.size(),
      config_.fallback->native_refusal.empty() ? ""
                                               : ". The class that is built in does not take it: ",
      config_.fallback->native_refusal);
}

// Python's tensors view the weights: destroy them first.
ForeignModel::~ForeignModel() {
  if (close_ != nullptr) close_(&host_);
}

Tensor ForeignModel::take(std::int64_t elements, DType dtype) {
  return loader_->root().take(dtype, {std::max<std::int64_t>(1, elements)});
}

void ForeignModel::fill(std::string_view name, DType dtype, std::vector<std::int64_t> shape,
                        WeightInit init, void* address) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  loader_->root().fill(Tensor::dense(address, dtype, {elements}), name, std::move(shape), {}, init);
}

std::int64_t ForeignModel::shape_of(std::string_view name, std::int64_t* extents) const {
  check(source_ != nullptr, "the shape of {} is asked for after loading", name);
  const TensorInfo* info = source_->find(name);
  require(info != nullptr && info->shape.size() <= 8, "the tensor {} has {} axes; 8 are the most",
          name, info == nullptr ? 0 : info->shape.size());
  std::ranges::copy(info->shape, extents);
  return std::ssize(info->shape);
}

void ForeignModel::read(std::string_view name, DType dtype, std::int64_t first, std::int64_t count,
                        void* address) const {
  std::int64_t extents[8];
  const std::int64_t rank = shape_of(name, extents);
  WeightRequest request{.name = name, .shape = {extents, extents + rank}};
  if (count >= 0) request.ranges = {{first, count}};
  source_->load(request, dtype,
                {static_cast<std::byte*>(address),
                 static_cast<std::size_t>(request.numel() * dtype_size(dtype))});
}

std::int64_t ForeignModel::declare_linear(std::string_view name, std::int64_t rows,
                                          std::int64_t columns, bool bias) {
  linears_.push_back(
      Linear::load(loader_->root(), {{name, rows}}, columns, Shard::kReplicated, bias));
  return static_cast<std::int64_t>(linears_.size()) - 1;
}

void ForeignModel::attend(const SluiceAttention& call) {
  check(running_.fb != nullptr && call.tokens == running_.fb->num_tokens,
        "attention over {} rows outside of a step", call.tokens);
  const Layer& layer = layers_.at(static_cast<std::size_t>(call.layer));
  check(layer.heads == call.heads && layer.kv_heads == call.kv_heads && layer.dim == call.dim &&
            layer.window == call.window && layer.softcap == call.softcap &&
            layer.sinks == (call.sinks != nullptr),
        "attention layer {} changed its shape", call.layer);
  const auto rows = [&](const float* data, std::int64_t heads) {
    return Tensor::dense(const_cast<float*>(data), DType::kF32, {call.tokens, heads, call.dim});
  };
  running_.backend->mha(
      *running_.ctx, *running_.fb,
      {.layer = static_cast<int>(call.layer),
       .q = rows(call.q, call.heads),
       .k = rows(call.k, call.kv_heads),
       .v = rows(call.v, call.kv_heads),
       .params = {.scale = static_cast<float>(call.scale),
                  .window = call.window,
                  .sinks = call.sinks == nullptr ? Tensor{}
                                                 : Tensor::dense(const_cast<float*>(call.sinks),
                                                                 DType::kF32, {call.heads}),
                  .softcap = static_cast<float>(call.softcap)},
       .out = rows(call.out, call.heads)});
}

// A step without computation: GEMMs and attention take their arena memory, which sets the peak.
void ForeignModel::rehearse(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend) const {
  void* nowhere = reinterpret_cast<void*>(64);
  for (const Linear& linear : linears_)
    linear.forward(ctx, Tensor::dense(nowhere, DType::kF32, {fb.num_tokens, linear.columns()}),
                   Tensor::dense(nowhere, DType::kF32, {fb.num_tokens, linear.rows()}));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const auto rows = [&](std::int64_t heads) {
      return Tensor::dense(nowhere, DType::kF32, {fb.num_tokens, heads, layer.dim});
    };
    backend.mha(
        ctx, fb,
        {.layer = static_cast<int>(i),
         .q = rows(layer.heads),
         .k = rows(layer.kv_heads),
         .v = rows(layer.kv_heads),
         .params = {.scale = static_cast<float>(layer.scale),
                    .window = layer.window,
                    .sinks =
                        layer.sinks ? Tensor::dense(nowhere, DType::kF32, {layer.heads}) : Tensor{},
                    .softcap = static_cast<float>(layer.softcap)},
         .out = rows(layer.heads)});
  }
}

void ForeignModel::forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                           StageIO& io) {
  if (fb.num_tokens == 0) return;
  check(
      io.layer_end == config_.num_layers && (io.layer_begin == 0 || io.layer_begin == io.layer_end),
      "layers [{}, {}) of a model that runs whole", io.layer_begin, io.layer_end);
  check(io.aux_layers.empty(), "the Transformers fallback keeps no auxiliary hidden states");
  if (ctx.dry_run) return rehearse(ctx, fb, backend);
  const std::int64_t num_rows = fb.logit_rows.defined() ? fb.logit_rows.dim(0) : 0;
  const SluiceStep step = {
      .tokens = fb.num_tokens,
      .ids = fb.input_ids.ptr<std::int32_t>(),
      .positions = fb.positions.ptr<std::int32_t>(),
      .embeddings = io.input_embeds.defined() ? io.input_embeds.ptr<float>() : nullptr,
      .hidden = io.hidden.ptr<float>(),
      .run_base = io.layer_begin == 0 ? 1 : 0,
      .num_rows = num_rows,
      .rows = num_rows > 0 ? fb.logit_rows.ptr<std::int32_t>() : nullptr,
      .logits = num_rows > 0 ? io.logits.ptr<float>() : nullptr,
  };
  running_ = {.ctx = &ctx, .fb = &fb, .backend = &backend};
  const std::int32_t status = step_(&step);
  running_ = {};
  if (status != 0) give_up("a step");
  if (io.final_hidden.defined())
    std::copy_n(io.hidden.ptr<float>(), io.hidden.numel(), io.final_hidden.ptr<float>());
}

std::vector<PageGroupSpec> ForeignModel::kv_groups() const {
  std::vector<PageGroupSpec> groups;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    auto group = std::ranges::find(groups, layer.window, &PageGroupSpec::span);
    if (group == groups.end()) {
      groups.push_back({{.name = layer.window == 0 ? "full" : "window",
                         .retention = layer.window == 0 ? Retention::kFull : Retention::kWindow,
                         .span = layer.window},
                        {}});
      group = std::prev(groups.end());
    }
    const std::int64_t row = ops::kv_row_elements(kv_dtype_, layer.kv_heads, layer.dim);
    // Layers of one shape share a plane, so a group may hold several planes "k" and "v".
    for (const char* name : {"k", "v"}) {
      auto plane = std::ranges::find_if(group->planes, [&](const PlaneSpec& p) {
        return p.name == name && p.row_elements == row;
      });
      if (plane == group->planes.end()) {
        group->planes.push_back(
            {.name = name, .dtype = kv_dtype_, .row_elements = row, .layers = {}});
        plane = std::prev(group->planes.end());
      }
      plane->layers.push_back(static_cast<int>(i));
    }
  }
  return groups;
}

}  // namespace sluice

// The symbol that the program looks up after it opened the plugin (models/plugin.h). The caller
// owns the model.
extern "C" {
extern const std::uint64_t sluice_plugin_layout;
const std::uint64_t sluice_plugin_layout = sluice::plugin_layout();
}
extern "C" sluice::Model* sluice_load_foreign_model(sluice::Context& ctx,
                                                    const sluice::ModelConfig& config,
                                                    const sluice::WeightSource& source,
                                                    const sluice::ModelOptions& options) {
  auto model = std::make_unique<sluice::ForeignModel>(config, options.numerics.kv());
  try {
    model->build(ctx, source, options);
  } catch (const sluice::Error& error) {
    if (config.fallback->native_refusal.empty()) throw;
    sluice::fail(error.kind(), "{}. Then the Transformers plugin was tried: {}",
                 config.fallback->native_refusal, error.message());
  }
  return model.release();
}
