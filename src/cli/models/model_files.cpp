#include "cli/models/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "checkpoint/files/weight_choice.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "checkpoint/weight_source.h"
#include "cli/download_bars.h"
#include "config/config_reader.h"
#include "engine/model_choice.h"
#include "hub/file_choice.h"
#include "tensor/device.h"

namespace sluice {
namespace {

// The configuration, or nothing where it is refused.
std::optional<ModelConfig> read_config(const Json& json) {
  try {
    return parse_model_config(dump_json(json), "config.json");
  } catch (const Error&) {
    return std::nullopt;
  }
}

struct BlockBits {
  std::string_view name;  // of the most common type
  double bits = 0;        // of an element of any matrix, in the mean
};

// Nothing where no matrix is stored in blocks that stay as they are; others count as they are
// widened.
std::optional<BlockBits> stored_blocks(const std::string& path) {
  const WeightSource source = WeightSource::checkpoint(path);
  std::map<BlockType, std::int64_t> elements;
  double bits = 0, all = 0;
  for (const std::string& name : source.names()) {
    const TensorInfo& info = *source.find(name);
    if (info.shape.size() < 2) continue;
    const bool kept = info.blocks && stays_as_blocks(*info.blocks);
    bits += info.blocks && !kept ? 16.0 * static_cast<double>(info.numel())
                                 : 8.0 * static_cast<double>(info.bytes);
    all += static_cast<double>(info.numel());
    if (kept) elements[*info.blocks] += info.numel();
  }
  if (elements.empty()) return std::nullopt;
  const auto most =
      std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
  return BlockBits{block_type_name(most->first), bits / all};
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

std::int64_t WeightForm::bytes(const WeightCount& part, bool tied) const {
  const double bits = part.name == "embedding" && !tied ? embedding_bits : product_bits;
  return std::llround(static_cast<double>(part.matrices) * bits / 8) + part.floats * 4;
}

std::int64_t WeightForm::bytes(const ModelSize& size, bool tied) const {
  std::int64_t sum = 0;
  for (const WeightCount& part : size.parts()) sum += bytes(part, tied);
  return sum;
}

WeightForm weight_form(const Options& options, const ModelConfig& config,
                       const std::string& model) {
  const bool stored_half = config.dtype == DType::kBF16 || config.dtype == DType::kF16;
  WeightForm form;
  form.compute = stored_half ? config.dtype : DType::kF32;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    if (options.dtype == dtype_name(dtype)) form.compute = dtype;
  form.kv = form.compute == DType::kBF16 ? DType::kBF16 : DType::kF32;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8})
    if (options.kv_cache_dtype == dtype_name(dtype)) form.kv = dtype;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3})
    if (options.index_cache_dtype == dtype_name(dtype)) form.index = dtype;
  require(!form.index || config.indexer,
          "--index-cache-dtype is for models that choose keys with an indexer (DeepSeek-V3.2, "
          "GLM-5), and {} has none; leave it "
          "out",
          config.architecture);
  require(form.kv != DType::kI8 || !config.mla,
          "--kv-cache-dtype int8 needs keys and values of heads, and {} caches one latent for all "
          "heads; give "
          "auto, bfloat16 or float32",
          config.architecture);
  const std::optional<BlockBits> blocks =
      is_gguf_path(model) && options.load_format != "dummy" ? stored_blocks(model) : std::nullopt;
  // In float32 matrices keep the file's type, which is widened on the way; blocks and quantised
  // matrices are widened as they are read.
  const bool widened = blocks || config.quantization;
  const DType plain =
      form.compute == DType::kF32 && stored_half && !widened ? config.dtype : form.compute;
  form.products = dtype_name(plain);
  form.product_bits = form.embedding_bits = 8.0 * static_cast<double>(dtype_size(plain));
  if (options.quantization == "int8" || options.quantization == "int4") {
    form.products =
        fmt::format("{} in groups of {}", options.quantization, options.quantization_group_size);
    // A group has a scale of 16 bits.
    form.product_bits =
        (options.quantization == "int8" ? 8 : 4) + 16.0 / options.quantization_group_size;
  } else if (blocks && options.quantization == "auto" && form.compute != DType::kF32) {
    form.products = fmt::format("{} blocks as in the file", blocks->name);
    form.product_bits = blocks->bits;
  }
  return form;
}

std::int64_t expected_weight_bytes(const Options& options) {
  try {
    if (choose_device(options.device).kind != DeviceKind::kCpu) return 0;
    const ResolvedModel model = find_model(options);
    const ModelConfig config = read_model_config(options, model.directory);
    return weight_form(options, config, model.directory)
        .bytes(model_size(config), config.tie_word_embeddings);
  } catch (const Error&) {
    return 0;
  }
}

std::vector<std::string> ignored_config_keys(const std::string& config_text,
                                             std::string_view override_args) {
  std::vector<std::string> ignored;
  Result<Json> file = parse_json(config_text);
  if (!file.ok() || !file->is_object()) return ignored;
  const Result<Json> patch = parse_json(override_args.empty() ? "{}" : override_args);
  if (patch.ok() && patch->is_object()) merge_json(*file, *patch);
  const std::optional<ModelConfig> whole = read_config(*file);
  if (!whole) return ignored;
  for (const auto& [key, value] : file->items()) {
    Json changed = *file;
    changed[key] = value.is_string() ? Json(-7.5) : Json("no such value");
    if (read_config(changed) == whole) ignored.push_back(key);
  }
  return ignored;
}

}  // namespace sluice
