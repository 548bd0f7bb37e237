// Quantised weights in config.json: quantization_config, or its older name compression_config.
// Where it has neither, hf_quant_config.h reads the file of ModelOpt.
//
//   ModelConfig config = load_model_config(directory);
//   WeightSource source =
//       WeightSource::checkpoint(directory, {.quantization = config.quantization});
//
// The tensors themselves show which matrices are quantised, by how many bits and in which groups
// (quant_formats.h). Lists such as modules_to_not_convert and ignore are hints that published files
// get wrong: they count where there are no tensors (WeightSource::leaves_plain). This struct holds
// what the tensors do not show, and what must agree with them: a checkpoint that lost a tensor
// would else give other numbers. Sources: transformers `utils/quantization_config.py`; the
// compressed-tensors library, `quantization/quant_config.py` and `quant_args.py`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class ConfigReader;

struct QuantizationConfig {
  std::string method = {};  // quant_method: a name of quantization_methods()
  std::string format =
      {};              // for compressed-tensors: float-quantized, int-quantized, pack-quantized or
                       // nvfp4-pack-quantized; for modelopt: nvfp4 or nothing
  int block_rows = 0;  // rows and columns of a block with one scale; 0: no blocks
  int block_columns = 0;
  int bits = 0;                // bits of a packed value, as the configuration has them
  bool zero_plus_one = false;  // GPTQ before its second format: a stored zero z stands for z + 1
  // What the tensors of every matrix must agree with. Left open where the configuration tells
  // matrices apart.
  std::vector<int> group_sizes = {};  // columns with one scale, or -1 for all: one of these
  bool has_order = false;             // there is an index of groups (desc_act, actorder)
  bool has_zeros = false;
  bool is_symmetric = false;   // no matrix has zeros other than the middle of its range
  bool signed_scales = false;  // AutoRound gives a group the sign of its largest number
  bool int8_rows = false;      // rows of x are int8, with a scale for each or for all of a matrix
  bool varies = false;         // in the width, groups and order of matrices, by patterns of names
  std::string number = {};     // e4m3 or e5m2
  // Modules that are not quantised, and those that alone may be; empty: all linear layers may be.
  // Names and patterns for config/modules/module_patterns.h.
  std::vector<std::string> plain_modules = {};
  std::vector<std::string> target_modules = {};

  std::string describe() const;  // "fp8 in blocks of 128 x 128"
  bool is_fp8() const;           // 8-bit floats with scales
  bool is_integers() const;      // with scales, of 8 bits or less
  bool is_mxfp4() const { return method == "mxfp4"; }
  bool is_nvfp4() const { return format == "nvfp4" || format == "nvfp4-pack-quantized"; }
  bool has_codes() const { return is_integers() || is_mxfp4() || is_nvfp4(); }
  bool operator==(const QuantizationConfig&) const = default;
};

// Nothing if the file does not mention quantisation. Error{kBadInput}: a method, or a variant of
// one, that cannot be read; the message says why and which can.
std::optional<QuantizationConfig> read_quantization(const ConfigReader& config);
// The same of the object at `key`.
std::optional<QuantizationConfig> read_quantization(const ConfigReader& config,
                                                    std::string_view key);

// The values of quant_method that can be read, in the order of the table.
std::vector<std::string_view> quantization_methods();

}  // namespace sluice
