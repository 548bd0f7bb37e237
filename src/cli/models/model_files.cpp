#include "cli/models/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log_mute.h"
#include "checkpoint/files/weight_choice.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/weight_source.h"
#include "cli/download_bars.h"
#include "engine/model_choice.h"
#include "hub/file_choice.h"
#include "kernels/types/int_fragments.h"
#include "models/decoder_spec.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Of an integer in groups of so many columns, with 16 bits of scale and 8 of zero point.
double integer_bits(int bits, bool has_zeros, std::int64_t group) {
  return bits + (has_zeros && bits <= 4 ? 24.0 : 16.0) / static_cast<double>(group);
}

double integer_bits(ops::Format format, std::int64_t group) {
  return integer_bits(format == ops::Format::kInt8 ? 8 : 4, format == ops::Format::kInt4Zero,
                      group);
}

// The columns of a unit of fragments share a scale, or fewer do where a file may say so.
std::int64_t columns_of_scale(const QuantizationConfig& stored) {
  std::int64_t group = ops::kFragmentColumns;
  for (const int size : stored.group_sizes)
    if (size > 0) group = std::min<std::int64_t>(group, size);
  return group;
}

ServingPlan plan_on_cpu(Options options, const ModelConfig& config) {
  options.device = "cpu";
  return resolve_or_throw(options, config, read_machine(Device{}));
}

std::vector<MatrixForm> planned_on_cpu(const ServingPlan& plan, const Loading& loading,
                                       const ModelConfig& config, const std::string& model) {
  const WeightSource source = WeightSource::checkpoint(
      model, {.format = loading.format, .quantization = config.quantization});
  Context ctx;
  ctx.cpu_isa = detect_cpu_isa();
  return planned_forms(ctx, config, source, {.numerics = plan.numerics()});
}

// Whether a GGUF file has matrices in blocks, and in which form the device of the plan has them.
struct FileBlocks {
  bool any = false;
  BlockBits bits;  // where the plan keeps blocks
};

FileBlocks blocks_of_file(const ServingPlan& plan, const ModelConfig& config,
                          const std::string& model) {
  FileBlocks out;
  if (!is_gguf_path(model) || plan.loading.dummy) return out;
  const WeightSource source = WeightSource::checkpoint(model);
  out.any = std::ranges::any_of(source.names(), [&](const std::string& name) {
    return source.find(name)->blocks.has_value();
  });
  if (!out.any || !plan.numerics().keep_blocks) return out;
  // A CPU tells the forms of Hopper, too: those follow from the numerics.
  Context ctx;
  ctx.cpu_isa = detect_cpu_isa();
  const std::vector<MatrixForm> forms =
      planned_forms(ctx, config, source, {.numerics = plan.numerics()});
  out.bits = block_bits(source, config, plan.numerics(), forms);
  return out;
}

}  // namespace

std::vector<StoredType> stored_types(const std::string& model, bool is_at_hub) {
  std::vector<StoredType> types;
  if (!is_gguf_path(model) &&
      !choose_weights(names_in(model), {WeightFormat::kSafetensors, WeightFormat::kPickle}, ""))
    return types;
  std::optional<WeightSource> source;
  try {
    source = WeightSource::checkpoint(model);
  } catch (const Error&) {
    if (!is_at_hub) throw;
    return types;
  }
  for (const std::string& name : source->names()) {
    const TensorInfo& info = *source->find(name);
    const std::string_view dtype =
        info.blocks ? block_type_name(*info.blocks) : dtype_name(info.dtype);
    auto type = std::ranges::find(types, dtype, &StoredType::dtype);
    if (type == types.end()) type = types.insert(types.end(), {std::string(dtype), 0, 0});
    ++type->num_tensors;
    type->bytes += static_cast<std::int64_t>(info.bytes);
  }
  std::ranges::sort(types, std::greater<>(), &StoredType::bytes);
  return types;
}

std::vector<MatrixForm> forms_on_cpu(const Options& options, const ModelConfig& config,
                                     const std::string& model) {
  const ServingPlan plan = plan_on_cpu(options, config);
  return planned_on_cpu(plan, plan.loading, config, model);
}

void require_weights(const ServingPlan& plan, const ModelConfig& config, const std::string& model) {
  if (!plan.loading.dummy) planned_on_cpu(plan_on_cpu({}, config), plan.loading, config, model);
}

std::optional<StoredMatrices> stored_matrices(const ServingPlan& plan, const ModelConfig& config,
                                              const std::string& model) {
  if (!plan.loading.keeps_stored) return std::nullopt;
  if (!plan.loading.dummy) {
    const LogMute mute;  // whoever loads the model says it
    try {
      return StoredMatrices(WeightSource::checkpoint(
          model, {.format = plan.loading.format, .quantization = config.quantization}));
    } catch (const Error&) {  // no files, or not all of them
    }
  }
  return StoredMatrices(WeightSource::dummy(0, 1, config.quantization));
}

ModelSize size_of_model(const ServingPlan& plan, const ModelConfig& config,
                        const std::string& model) {
  const std::optional<StoredMatrices> stored = stored_matrices(plan, config, model);
  return model_size(config, stored ? &*stored : nullptr);
}

std::string WeightForm::describe(const ModelSize& size) const {
  if (blocks) return blocks->describe(others);
  WeightCount linear;
  for (const WeightCount& part :
       {size.attention, size.indexer, size.dense_mlp, size.shared_experts})
    linear.matrices += part.matrices - part.plain;
  const bool has_linear = linear.matrices > 0 && linear_bits != product_bits,
             has_experts =
                 size.experts.matrices > size.experts.plain && expert_bits != product_bits;
  if (!has_linear && !has_experts) return linear_bits == product_bits ? products : others;
  return fmt::format("{} in {}{}{}, {} in others", products, has_linear ? "linear layers" : "",
                     has_linear && has_experts ? " and " : "", has_experts ? "experts" : "",
                     others);
}

std::int64_t WeightForm::bytes(const WeightCount& part, bool tied) const {
  const bool is_head = part.name == "head" || (part.name == "embedding" && tied);
  const double bits = is_head                         ? head_bits
                      : part.name == "embedding"      ? embedding_bits
                      : part.name == "routed experts" ? expert_bits
                                                      : linear_bits;
  return std::llround(
             (static_cast<double>(part.matrices - part.plain) * bits +
              static_cast<double>(part.plain + (expands ? part.expanded : 0)) * plain_bits) /
             8) +
         part.floats * 4;
}

std::int64_t WeightForm::bytes(const ModelSize& size, bool tied) const {
  std::int64_t sum = 0;
  for (const WeightCount& part : size.parts()) sum += bytes(part, tied);
  return sum;
}

WeightForm weight_form(const ServingPlan& plan, const ModelConfig& config,
                       const std::string& model) {
  const Numerics& numerics = plan.numerics();
  const bool stored_half = config.dtype == DType::kBF16 || config.dtype == DType::kF16;
  const FileBlocks blocks = blocks_of_file(plan, config, model);
  // In float32 matrices keep the file's type, which is widened on the way; blocks and quantised
  // matrices are widened as they are read.
  const bool widened = blocks.any || config.quantization;
  const DType plain =
      numerics.compute == DType::kF32 && stored_half && !widened ? config.dtype : numerics.compute;
  WeightForm form;
  form.expands = plan.runner.model.mla_expandable;
  form.products = form.others = dtype_name(plain);
  form.product_bits = form.embedding_bits = form.head_bits = form.linear_bits = form.expert_bits =
      form.plain_bits = 8.0 * static_cast<double>(dtype_size(plain));
  if (blocks.bits.stays()) {
    const BlockBits& stored = blocks.bits;
    const auto bits_of = [&](const BlockBits::Kind& kind) {
      return kind.matrices > 0 ? kind.bits : form.plain_bits;
    };
    form.embedding_bits = bits_of(stored.embedding);
    form.head_bits = stored.head.matrices > 0 ? stored.head.bits : form.embedding_bits;
    form.linear_bits = bits_of(stored.linear);
    form.expert_bits = bits_of(stored.experts);
    form.blocks = stored;
    return form;
  }
  // Matrices that a file stores transposed have tiles, but no fragments.
  const std::optional<DecoderSpec> spec = decoder_spec(config);
  const bool has_fragments = !spec || !spec->mlp_names.transposed;
  const bool fp8 = has_fragments &&
                   (numerics.quantization == ops::Format::kFp8 ||
                    (numerics.keep_fp8 && config.quantization && config.quantization->is_fp8()));
  const bool ints = numerics.int_fragments && !numerics.quantization && config.quantization &&
                    config.quantization->is_integers();
  // Random weights of MXFP4 have it in experts.
  const bool mxfp4 = numerics.int_fragments && !numerics.quantization && config.quantization &&
                     config.quantization->is_mxfp4();
  const bool nvfp4 = numerics.quantization == ops::Format::kNvFp4 ||
                     (numerics.int_fragments && !numerics.quantization && config.quantization &&
                      config.quantization->is_nvfp4());
  std::optional<double> linear_bits;  // where they differ from those of other products
  if (ints) {
    form.products = "integers as stored";
    const QuantizationConfig& stored = *config.quantization;
    // Files of AWQ and GPTQ alone tell whether their zero points are needed.
    linear_bits =
        integer_bits(stored.bits, stored.has_zeros || stored.method != "compressed-tensors",
                     columns_of_scale(stored));
  } else if (nvfp4) {
    form.products = "NVFP4";
    // A byte of scale for 16 columns, and a float32 for 4 rows of 128 columns.
    linear_bits = 4 + 8.0 / 16 + 32.0 / (4 * 128);
  } else if (mxfp4) {
    form.products = "MXFP4";
    linear_bits = 4 + 8.0 / 32;  // groups of 32 with a byte of scale
  } else if (fp8) {
    form.products = "FP8";
    // A float32 for 16 rows of 128 columns; scales of rows take less. In fragments each row has
    // one.
    linear_bits = 8 + 32.0 / (numerics.fp8_fragments ? 128 : 16 * 128);
  } else if (numerics.quantization && numerics.quantization != ops::Format::kFp8 &&
             (has_fragments || !numerics.int_fragments)) {
    form.products =
        fmt::format("int{} in groups of {}", numerics.quantization == ops::Format::kInt8 ? 8 : 4,
                    numerics.quantization_group);
    form.product_bits = integer_bits(*numerics.quantization, numerics.quantization_group);
  }
  if (numerics.int_fragments && !ints && !nvfp4 && !mxfp4 && numerics.quantization) {
    linear_bits = form.product_bits;
    form.product_bits = form.plain_bits;
  }
  form.head_bits = form.product_bits;
  form.linear_bits = linear_bits.value_or(form.product_bits);
  // Experts in FP8 have a float32 for 128 columns of each row.
  const bool keeps_fp8 = fp8 && config.quantization && config.quantization->is_fp8();
  form.expert_bits = keeps_fp8                ? 8 + 32.0 / 128
                     : ints || nvfp4 || mxfp4 ? form.linear_bits
                                              : form.product_bits;
  if (numerics.experts_rounded_to) {
    const ops::Format rounded = *numerics.experts_rounded_to;
    if (rounded == ops::Format::kFp8)
      form.expert_bits = 8 + 32.0 / 128;  // a float32 for a group
    else if (!nvfp4 && !mxfp4)
      form.expert_bits = integer_bits(rounded, numerics.quantization_group);
  }
  return form;
}

std::int64_t expected_weight_bytes(const Options& options) {
  try {
    const Device device = serving_device(options);
    if (device.kind != DeviceKind::kCpu) return 0;
    const ResolvedModel model = find_model(options);
    const ModelConfig config = read_model_config(options, model.directory);
    const ServingPlan plan = resolve_or_throw(options, config, read_machine(device));
    return weight_form(plan, config, model.directory)
        .bytes(size_of_model(plan, config, model.directory), config.tie_word_embeddings);
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace sluice
