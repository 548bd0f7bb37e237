#include "config/quant_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "config/config_reader.h"

namespace sluice {
namespace {

// Error{kBadInput} for a value of `key` besides null and those allowed.
void require_one_of(const ConfigReader& config, std::string_view key,
                    std::initializer_list<std::string_view> allowed) {
  const std::optional<std::string> value = config.find_string(key);
  if (value && std::ranges::find(allowed, *value) == allowed.end())
    config.reject(key, fmt::format("allowed: {}", fmt::join(allowed, ", ")));
}

// Adds what one group or all matrices have, if the configuration says it.
void read_group_size(const ConfigReader& config, std::string_view key,
                     QuantizationConfig& quantization) {
  const std::optional<int> size = config.find_int(key);
  if (!size) return;
  if (*size == 0)
    config.reject(key, "it must be the columns that share a scale, or -1 for all of a row");
  quantization.group_sizes.push_back(*size);
}

// Adds the strings of a list, and of lists within it.
void add_names(const Json* list, std::vector<std::string>& out) {
  if (list == nullptr || !list->is_array()) return;
  for (const Json& entry : *list) {
    if (entry.is_string()) out.push_back(entry.get<std::string>());
    if (!entry.is_array()) continue;
    for (const Json& name : entry)
      if (name.is_string()) out.push_back(name.get<std::string>());
  }
}

// Lists of modules under the names that methods and their tools give them.
void read_modules(const ConfigReader& config, QuantizationConfig& quantization) {
  for (const char* key : {"modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"})
    add_names(config.find(key), quantization.plain_modules);
  add_names(config.find("modules_in_block_to_quantize"), quantization.target_modules);
}

// Targets of groups are modules, or a class such as Linear: all of its modules.
void read_targets(const Json& groups, QuantizationConfig& quantization) {
  std::vector<std::string> targets;
  for (const auto& [name, group] : groups.items())
    if (group.is_object() && group.contains("targets")) add_names(&group["targets"], targets);
  const bool has_class = std::ranges::any_of(targets, [](const std::string& target) {
    return !target.empty() && target[0] >= 'A' && target[0] <= 'Z' &&
           target.find('.') == std::string::npos;
  });
  if (!has_class) quantization.target_modules = std::move(targets);
}

// AutoRound's exports in the formats of others; its symmetric integers take the whole range.
bool is_of_autoround(const ConfigReader& config) {
  return config.find("autoround_version") != nullptr ||
         config.find_string("provider").value_or("") == "auto-round";
}

void read_fp8(const ConfigReader& config, QuantizationConfig& quantization) {
  require_one_of(config, "activation_scheme", {"dynamic", "static"});
  require_one_of(config, "fmt", {"e4m3", "e4m3fn", "float8_e4m3fn", "e5m2", "float8_e5m2"});
  const std::string number = config.find_string("fmt").value_or("");
  if (!number.empty())
    quantization.number = number.find("e5m2") == std::string::npos ? "e4m3" : "e5m2";
  if (config.find("weight_block_size") == nullptr) return;
  const std::vector<int> block = config.ints("weight_block_size", 1, 65536, 2);
  if (block.size() != 2)
    config.reject("weight_block_size", "it must be two integers: rows and columns of a block");
  quantization.block_rows = block[0];
  quantization.block_columns = block[1];
}

// NVFP4 has one size of groups.
void require_fp4_groups(const ConfigReader& config) {
  if (config.int_or("group_size", 16) != 16)
    config.reject("group_size", "NVFP4 has a scale for each 16 columns");
}

void read_nvfp4(const ConfigReader& config, QuantizationConfig& quantization) {
  require_fp4_groups(config);
  quantization.format = "nvfp4";
  quantization.bits = 4;
}

// quant_algo in capitals; ModelOpt writes both.
std::string algorithm_of(const ConfigReader& config) {
  std::string name = config.find_string("quant_algo").value_or("");
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  });
  return name;
}

// W4A16_NVFP4 has the same weights as NVFP4, whose rounding of x is not done.
bool is_nvfp4(const std::string& algorithm) {
  return algorithm == "NVFP4" || algorithm == "W4A16_NVFP4";
}

void read_modelopt(const ConfigReader& config, QuantizationConfig& quantization) {
  const std::string algorithm = algorithm_of(config);
  if (is_nvfp4(algorithm)) return read_nvfp4(config, quantization);
  if (algorithm != "FP8")
    config.reject("quant_algo",
                  "FP8, NVFP4 and W4A16_NVFP4 can be read; take the unquantised model or one in "
                  "these formats");
  quantization.number = "e4m3";
}

// The name that SGLang gives to ModelOpt's NVFP4.
void read_modelopt_fp4(const ConfigReader& config, QuantizationConfig& quantization) {
  quantization.method = "modelopt";
  if (config.find("quant_algo") != nullptr && !is_nvfp4(algorithm_of(config)))
    config.reject("quant_algo", "modelopt_fp4 has NVFP4");
  read_nvfp4(config, quantization);
}

void read_awq(const ConfigReader& config, QuantizationConfig& quantization) {
  const std::string version = config.find_string("version").value_or("gemm");
  if (version != "gemm" && version != "GEMM")
    config.reject("version",
                  "only gemm can be read: the others store the matrix transposed or reordered for "
                  "one kernel");
  const std::string_view bits = config.first_of({"bits", "w_bit"});
  if (config.int_or(bits, 4) != 4) config.reject(bits, "AWQ has 4 bits");
  quantization.bits = 4;
  if (!config.bool_or("zero_point", true))
    config.reject("zero_point", "it must be true: AWQ is read with its zeros");
  read_group_size(config, config.first_of({"group_size", "q_group_size"}), quantization);
}

void read_gptq(const ConfigReader& config, QuantizationConfig& quantization) {
  const std::string format = config.find_string("checkpoint_format").value_or("gptq");
  if ((format != "gptq" && format != "gptq_v2") || config.bool_or("is_marlin_format", false))
    config.reject("checkpoint_format",
                  "only gptq and gptq_v2 can be read: other formats are ordered for one kernel");
  quantization.zero_plus_one = format == "gptq";
  quantization.bits = config.int_or("bits", 4);
  constexpr int kWidths[] = {2, 3, 4, 8};
  if (std::ranges::find(kWidths, quantization.bits) == std::end(kWidths))
    config.reject("bits", "values of 2, 3, 4 or 8 bits can be read");
  const Json* dynamic = config.find("dynamic");
  if (dynamic != nullptr && !dynamic->is_object())
    config.reject("dynamic", "it must be an object of patterns, or null");
  quantization.varies = dynamic != nullptr && !dynamic->empty();
  if (quantization.varies) {
    // "-:" begins the pattern of modules that stay plain.
    for (const auto& [pattern, settings] : dynamic->items())
      if (pattern.starts_with("-:"))
        quantization.plain_modules.push_back("re:" + pattern.substr(2));
    return;
  }
  read_group_size(config, "group_size", quantization);
  quantization.has_order = config.bool_or("desc_act", false);
}

// Whether columns have an index of groups. "weight" and "static" order them before they are stored.
bool read_order(const ConfigReader& weights) {
  const Json* order = weights.find("actorder");
  if (order == nullptr) return false;
  if (order->is_boolean()) return order->get<bool>();
  require_one_of(weights, "actorder", {"group", "dynamic", "weight", "static"});
  const std::string name = weights.find_string("actorder").value_or("");
  return name == "group" || name == "dynamic";
}

// Reads the arguments of one group's weights.
void read_group(const ConfigReader& weights, QuantizationConfig& quantization) {
  const std::string type = weights.find_string("type").value_or("int");
  const int bits = weights.int_or("num_bits", 8);
  const bool packed = quantization.format == "pack-quantized";
  if (quantization.format == "nvfp4-pack-quantized") {
    if (type != "float" || bits != 4)
      weights.reject(type != "float" ? "type" : "num_bits",
                     "weights of this format are 4-bit floats");
    require_fp4_groups(weights);
    require_one_of(weights, "strategy", {"tensor_group", "group"});
    if (!weights.bool_or("symmetric", true))
      weights.reject("symmetric", "weights of this format have no zeros");
    if (read_order(weights))
      weights.reject("actorder", "weights of this format are read in the order of their columns");
    quantization.bits = bits;
    quantization.has_order = quantization.has_zeros = false;
    return;
  }
  if (packed ? bits != 4 && bits != 8 : bits != 8)
    weights.reject("num_bits",
                   packed ? "packed weights have 4 or 8" : "weights of this format have 8");
  const std::string_view wanted = quantization.format == "float-quantized" ? "float" : "int";
  if (type != wanted)
    weights.reject("type",
                   fmt::format("weights of the format {} are {}", quantization.format, wanted));
  if (quantization.bits != 0 && quantization.bits != bits)
    weights.reject("num_bits", "groups of different widths cannot be read together");
  quantization.bits = bits;
  require_one_of(weights, "strategy", {"tensor", "channel", "group", "block"});
  const std::string strategy = weights.find_string("strategy").value_or("");
  if (strategy == "group")
    read_group_size(weights, "group_size", quantization);
  else if (!strategy.empty())
    quantization.group_sizes.push_back(-1);
  const bool symmetric = weights.bool_or("symmetric", true);
  if (!symmetric && !packed)
    weights.reject("symmetric",
                   "weights of this format are read without zeros; take a symmetric checkpoint");
  const bool has_order = read_order(weights);
  // All groups or none: which matrices a group has is not read.
  quantization.has_order = quantization.has_order && has_order;
  quantization.has_zeros = quantization.has_zeros && !symmetric;
  quantization.is_symmetric = quantization.is_symmetric && symmetric;
  if (strategy != "block") return;
  const std::vector<int> block = weights.ints("block_structure", 1, 65536, 2);
  if (block.size() != 2)
    weights.reject("block_structure", "it must be two integers: rows and columns of a block");
  quantization.block_rows = block[0];
  quantization.block_columns = block[1];
}

// Rows of another kind are not rounded: in groups, with zero points, or in another type.
bool has_int8_rows(const Json& group) {
  const Json rows = group.value("input_activations", Json());
  if (!rows.is_object()) return false;
  const Json strategy = rows.value("strategy", Json());
  return rows.value("num_bits", Json()) == 8 && rows.value("type", Json()) == "int" &&
         rows.value("symmetric", Json(true)) == true &&
         (strategy == "token" || strategy == "tensor");
}

void read_compressed_tensors(const ConfigReader& config, QuantizationConfig& quantization) {
  quantization.format = config.find_string("format").value_or("");
  constexpr std::string_view kFormats[] = {"float-quantized", "int-quantized", "pack-quantized",
                                           "nvfp4-pack-quantized"};
  if (std::ranges::find(kFormats, quantization.format) == std::end(kFormats))
    config.reject("format", fmt::format("formats that can be read: {}", fmt::join(kFormats, ", ")));
  const Json* sparsity = config.find("sparsity_config");
  if (sparsity != nullptr && !sparsity->empty() &&
      !(sparsity->is_object() && sparsity->value("format", Json()) == "dense"))
    config.reject("sparsity_config",
                  "weights that are stored sparse cannot be read; take a dense checkpoint");
  const Json* transform = config.find("transform_config");
  if (transform != nullptr && !transform->empty())
    config.reject("transform_config",
                  "rotated weights cannot be read; take a checkpoint without a transform");
  const Json* groups = config.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty() || groups->size() > 64)
    config.reject("config_groups", "it must be an object of 1 to 64 groups");
  quantization.has_order = quantization.has_zeros = quantization.is_symmetric = true;
  if (quantization.format == "float-quantized") quantization.number = "e4m3";
  quantization.int8_rows = quantization.format == "int-quantized";
  for (const auto& [name, group] : groups->items()) {
    const std::string prefix =
        fmt::format("quantization_config.config_groups.{}.weights.", name.substr(0, 64));
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object())
      config.reject("config_groups", "each group must say what its weights are");
    read_group(ConfigReader(group["weights"], config.what(), prefix), quantization);
    quantization.int8_rows = quantization.int8_rows && has_int8_rows(group);
  }
  read_targets(*groups, quantization);
  // A group without a size leaves that of its matrices open.
  if (quantization.group_sizes.size() < groups->size()) quantization.group_sizes.clear();
}

// transformers rounds experts alone (`integrations/mxfp4.py`).
void read_mxfp4(const ConfigReader&, QuantizationConfig& quantization) {
  quantization.target_modules = {"experts"};
}

// quant_method, and the reader of its further keys.
struct Method {
  std::string_view name;
  void (*read)(const ConfigReader&, QuantizationConfig&);
};
constexpr Method kMethods[] = {
    {"fp8", read_fp8},
    {"fbgemm_fp8",
     [](const ConfigReader&, QuantizationConfig& quantization) { quantization.number = "e4m3"; }},
    {"modelopt", read_modelopt},
    {"modelopt_fp4", read_modelopt_fp4},
    {"compressed-tensors", read_compressed_tensors},
    {"awq", read_awq},
    {"gptq", read_gptq},
    {"mxfp4", read_mxfp4},
};

// Known methods without a reader.
struct Refusal {
  std::string_view name;
  std::string_view reason;
};
constexpr Refusal kRefusals[] = {
    {"bitsandbytes",
     "its codebooks and nested scales are not read; take the unquantised model and --quantization "
     "int8 or int4"},
    {"aqlm", "weights made of learned codebooks are not read"},
    {"quip", "weights made of lattice codebooks are not read"},
    {"vptq", "weights made of learned codebooks are not read"},
    {"eetq", "its order of bytes belongs to one kernel"},
    {"hqq", "zeros that are floats are not read"},
    {"quanto", "serialised tensor classes are not read"},
    {"torchao", "serialised tensor classes are not read"},
    {"higgs", "rotated weights are not read"},
    {"spqr", "weights with outliers stored apart are not read"},
    {"bitnet", "ternary weights need a model of their own"},
    {"auto-round", "its packing formats are not read; take an export in the format of GPTQ or AWQ"},
};

}  // namespace

std::string QuantizationConfig::describe() const {
  std::string text = method;
  if (!format.empty() || method == "modelopt") text += ", " + (format.empty() ? "fp8" : format);
  if (method == "compressed-tensors" && bits > 0) text += fmt::format(", {} bits", bits);
  if (block_rows > 0) text += fmt::format(" in blocks of {} x {}", block_rows, block_columns);
  return text;
}

bool QuantizationConfig::is_fp8() const {
  return method == "fp8" || method == "fbgemm_fp8" || (method == "modelopt" && format.empty()) ||
         format == "float-quantized";
}

bool QuantizationConfig::is_integers() const {
  return method == "awq" || method == "gptq" || format == "pack-quantized" ||
         format == "int-quantized";
}

std::vector<std::string_view> quantization_methods() {
  std::vector<std::string_view> names;
  for (const Method& row : kMethods) names.push_back(row.name);
  return names;
}

std::optional<QuantizationConfig> read_quantization(const ConfigReader& config) {
  return read_quantization(config, config.first_of({"quantization_config", "compression_config"}));
}

std::optional<QuantizationConfig> read_quantization(const ConfigReader& config,
                                                    std::string_view key) {
  const Json* value = config.find(key);
  if (value == nullptr || (value->is_object() && value->empty())) return std::nullopt;
  if (!value->is_object()) config.reject(key, "it must be an object or null");
  const ConfigReader inner(*value, config.what(), std::string(key) + '.');
  QuantizationConfig quantization;
  quantization.method = inner.find_string("quant_method").value_or("");
  for (const Method& row : kMethods) {
    if (row.name != quantization.method) continue;
    read_modules(inner, quantization);
    row.read(inner, quantization);
    quantization.signed_scales = quantization.is_integers() && is_of_autoround(inner);
    return quantization;
  }
  for (const Refusal& row : kRefusals)
    if (row.name == quantization.method)
      inner.reject("quant_method", fmt::format("{}. Methods that can be read: {}", row.reason,
                                               fmt::join(quantization_methods(), ", ")));
  inner.reject(
      "quant_method",
      fmt::format(
          "methods that can be read: {}. With --load-format dummy, --json-model-override-args "
          "'{{\"{}\": null}}' removes the key",
          fmt::join(quantization_methods(), ", "), key));
}

}  // namespace sluice
