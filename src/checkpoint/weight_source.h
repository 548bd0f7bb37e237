// Where the weights of a model come from: safetensors or PyTorch files, a GGUF file, or seeded
// random numbers
// (--load-format dummy).
//
//   WeightSource source = WeightSource::checkpoint(directory);
//   WeightRequest norm{.name = "model.norm.weight", .shape = {hidden}, .init = WeightInit::kOnes};
//   source.load(norm, DType::kF32, bytes);
//   if (source.has("lm_head.weight", !config.tie_word_embeddings)) ...
//
// load() may be called from several threads at once. It allocates at most 4 MiB of scratch memory a
// call, 16 MiB where a quantised matrix is widened.
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

namespace sluice {

// One tensor of the source, or a box of it (a rank's shard).
struct WeightRequest {
  std::string_view name;
  std::vector<std::int64_t> shape;        // of the whole tensor as the checkpoint stores it
  std::vector<AxisRange> ranges = {};     // by axis; missing entries are whole
  WeightInit init = WeightInit::kNormal;  // what a dummy source fills in

  std::int64_t numel() const;  // elements of the box
};

struct SourceOptions {
  LoadFormat format = LoadFormat::kAuto;  // of a directory
  // ModelConfig::quantization: matrices with scales then appear as plain ones. Without it they are
  // several tensors.
  std::optional<QuantizationConfig> quantization = {};
};

class WeightSource {
 public:
  // `path` is a directory with safetensors or PyTorch files, or a .gguf file. Error{kBadInput}: see
  // Checkpoint, QuantizedCheckpoint and GgufCheckpoint.
  static WeightSource checkpoint(const std::string& path, const SourceOptions& options = {});
  // N(0, sigma) from (seed, tensor name, element): the same numbers whatever is loaded first and
  // however it is sharded.
  static WeightSource dummy(std::uint64_t seed, double sigma);

  // From now on load() refuses tensors that hold NaN or infinity, by name and element.
  void check_finite() { check_finite_ = true; }
  // Checkpoint::check_storages(); nothing for other sources.
  void check_storages() const {
    if (checkpoint_) checkpoint_->check_storages();
  }

  bool is_dummy() const { return dummy_ != nullptr; }

  // Whether the source holds `name`. A dummy source has no list of tensors: it answers `by_config`,
  // what the configuration expects.
  bool has(std::string_view name, bool by_config) const;
  const TensorInfo* find(
      std::string_view name) const;        // null when absent, and always for a dummy source
  std::vector<std::string> names() const;  // empty for a dummy source
  std::uint64_t total_bytes() const;       // 0 for a dummy source

  // Writes the box, dense and row-major, as `dtype` into `out` (exactly numel x size bytes).
  // float32 from bfloat16, float16, blocks or a quantised matrix is exact; narrowing rounds to
  // nearest even. Integer and fp8 types are copied, never converted. Error{kBadInput} naming the
  // tensor: it is missing, has another shape, or cannot become `dtype`.
  void load(const WeightRequest& request, DType dtype, std::span<std::byte> out) const;

  // Whether reading some rows of a tensor reads no more of the file than they have in it. A GGUF
  // file may have rows in another order, and a quantised matrix its columns' rows side by side.
  bool rows_are_contiguous(std::string_view name) const;

  // Calls `use` with the box as load() would write it, but where it lies in the page cache: no copy
  // is made. Returns false without calling it where only load() has the box so: it is converted,
  // has gaps, is small, or the file cannot be mapped. Errors as of load(), some of them after the
  // call; what `use` made of the bytes then counts for nothing.
  bool with_mapping(const WeightRequest& request, DType dtype,
                    const std::function<void(std::span<const std::byte>)>& use) const;

  // The same box as the file stores it, for a tensor whose TensorInfo has `blocks`
  // (quantized_blocks.h): rows in the order of load(), each box.columns / block_values blocks,
  // densely into `out` (exactly that many bytes). The box begins and ends at a multiple of
  // block_values columns. Errors as of load().
  void load_blocks(const WeightRequest& request, std::span<std::byte> out) const;

 private:
  WeightSource() = default;
  const TensorInfo& stored(const WeightRequest& request) const;
  void refuse_not_finite(const WeightRequest& request, DType dtype, const std::byte* values) const;

  std::unique_ptr<Checkpoint> checkpoint_;          // one of checkpoint_, gguf_ and dummy_ is set
  std::unique_ptr<QuantizedCheckpoint> quantized_;  // over checkpoint_, or null
  std::unique_ptr<GgufCheckpoint> gguf_;
  std::unique_ptr<DummyWeights> dummy_;
  bool check_finite_ = false;
};

}  // namespace sluice
