// The source of a model's weights: safetensors or PyTorch files, a GGUF file, or seeded random
// numbers (the load format dummy).
//
//   WeightSource source = WeightSource::checkpoint(directory);
//   WeightRequest norm{.name = "model.norm.weight", .shape = {hidden}, .init = WeightInit::kOnes};
//   source.load(norm, DType::kF32, bytes);
//   if (source.has("lm_head.weight", !config.tie_word_embeddings)) ...
//
// load() may be called from several threads at once. It takes at most 4 MiB of scratch memory per
// call, 16 MiB for a quantised matrix.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/dummy_weights.h"
#include "checkpoint/files/checkpoint.h"
#include "checkpoint/gguf/gguf_checkpoint.h"
#include "checkpoint/quantized/quantized_checkpoint.h"
#include "checkpoint/tensors/tensor_info.h"
#include "config/modules/module_patterns.h"

namespace sluice {

// One tensor of the source, or a box of it (a rank's shard).
struct WeightRequest {
  std::string_view name;
  std::vector<std::int64_t> shape;        // shape of the whole tensor in the checkpoint
  std::vector<AxisRange> ranges = {};     // by axis; missing entries are whole
  WeightInit init = WeightInit::kNormal;  // values from a dummy source

  std::int64_t numel() const;  // elements of the box
};

struct SourceOptions {
  LoadFormat format = LoadFormat::kAuto;  // for a directory
  // ModelConfig::quantization: matrices with scales then appear as plain matrices. Without it they
  // are several tensors.
  std::optional<QuantizationConfig> quantization = {};
};

class WeightSource {
 public:
  // `path` is a directory with safetensors or PyTorch files, or a .gguf file. Error{kBadInput}: see
  // Checkpoint, QuantizedCheckpoint and GgufCheckpoint.
  static WeightSource checkpoint(const std::string& path, const SourceOptions& options = {});
  // N(0, sigma) from (seed, tensor name, element): the numbers do not depend on the load order or
  // the sharding. `quantization`: of the checkpoint that they stand for (leaves_plain).
  static WeightSource dummy(std::uint64_t seed, double sigma,
                            const std::optional<QuantizationConfig>& quantization = {});

  // From now on load() refuses tensors with NaN or infinity, naming tensor and element.
  void check_finite() { check_finite_ = true; }
  // Checkpoint::check_storages(); no effect for other sources.
  void check_storages() const {
    if (checkpoint_) checkpoint_->check_storages();
  }

  bool is_dummy() const { return dummy_ != nullptr; }

  // Whether the source holds `name`. A dummy source has no list of tensors: it returns `by_config`,
  // the configuration's expectation.
  bool has(std::string_view name, bool by_config) const;
  const TensorInfo* find(
      std::string_view name) const;        // null when absent, and always for a dummy source
  std::vector<std::string> names() const;  // empty for a dummy source
  // Small tensors that no matrix is made of, such as the scales of a KV cache: the names in the
  // files, and all elements in float32. Empty where `name` is absent, and for GGUF files and dummy
  // sources. Error{kBadInput}: more than 4,096 elements, or no numbers.
  std::vector<std::string> stored_names() const;
  std::vector<float> small_tensor(std::string_view name) const;
  std::uint64_t total_bytes() const;  // 0 for a dummy source

  // Whether a quantised checkpoint has the matrix `name` unquantised: its tensors tell, and for a
  // dummy source the lists of the configuration. False where nothing is quantised.
  bool leaves_plain(std::string_view name) const;
  // The quantised form of a matrix whose numbers load() can read as e4m3; null: it has another one.
  const QuantMatrix* find_fp8(std::string_view name) const;
  std::vector<float> fp8_scales(const QuantMatrix& matrix) const;  // QuantizedCheckpoint::scales

  // The quantised form of a matrix of integers or e2m1; null: it has another one.
  const QuantMatrix* find_integers(std::string_view name) const;
  // Reads a tile of it, or of a matrix of find_fp8(). Takes memory in proportion to the tile.
  void read_codes(const QuantMatrix& matrix, const QuantTile& tile, QuantCodes& out) const;
  // Of MXFP4 and NVFP4. Error{kBadInput}: a scale of the tile's rows is no scale.
  void check_scales(const QuantMatrix& matrix, const QuantTile& tile) const;

  // Writes the box, dense and row-major, as `dtype` into `out` (exactly numel x size bytes).
  // Conversion to float32 from bfloat16, float16, blocks or a quantised matrix is exact; narrowing
  // rounds to nearest even. Integer and fp8 types are copied, never converted; so are the numbers
  // of find_fp8(), of which none may be NaN. Error{kBadInput} naming the tensor: it is missing, has
  // another shape, or cannot become `dtype`.
  void load(const WeightRequest& request, DType dtype, std::span<std::byte> out) const;

  // Whether reading some rows of a tensor reads only their bytes of the file. A GGUF file may
  // reorder rows, and a quantised matrix may store the rows of a column contiguously.
  bool rows_are_contiguous(std::string_view name) const;

  // Calls `use` with the box of load(), mapped from the page cache without a copy. Returns false
  // without a call if only load() can provide the box: it is converted, has gaps, is small, or the
  // file cannot be mapped. Errors as of load(), some of them after the call; then the result of
  // `use` is invalid.
  bool with_mapping(const WeightRequest& request, DType dtype,
                    const std::function<void(std::span<const std::byte>)>& use) const;

  // The box as the file stores it, for a tensor whose TensorInfo has `blocks` (quantized_blocks.h).
  // Rows are in the order of load(), each with box.columns / block_values blocks, written densely
  // to `out` (exactly that many bytes). The box begins and ends at a multiple of block_values
  // columns. Errors as of load().
  void load_blocks(const WeightRequest& request, std::span<std::byte> out) const;

 private:
  WeightSource() = default;
  const TensorInfo& stored(const WeightRequest& request) const;
  void load_e4m3(const WeightRequest& request, const TensorInfo& values,
                 const std::vector<AxisRange>& ranges, std::span<std::byte> out) const;
  void refuse_not_finite(const WeightRequest& request, DType dtype, const std::byte* values) const;

  std::unique_ptr<Checkpoint> checkpoint_;          // one of checkpoint_, gguf_ and dummy_ is set
  std::unique_ptr<QuantizedCheckpoint> quantized_;  // on top of checkpoint_, or null
  std::unique_ptr<GgufCheckpoint> gguf_;
  std::unique_ptr<DummyWeights> dummy_;
  std::unique_ptr<QuantizedModules> modules_;  // that dummy_ stands for, or null
  bool check_finite_ = false;
};

}  // namespace sluice
