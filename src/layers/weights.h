// How layers take their weights: each states the checkpoint's names and how they shard where it is
// built.
//
//   WeightLoader loader(source, numerics, ctx);
//   Weights layer = loader.root().sub("model").sub("layers", 3);
//   Tensor qkv = layer.sub("self_attn").column({{"q_proj", 4096}, {"k_proj", 512}, {"v_proj",
//   512}}, 4096);
//   ...
//   std::vector<std::string> unused = loader.finish(is_known_extra);
//   WeightStore store = loader.take_store();            // owns the memory of all tensors handed
//   out
//
// Tensors are handed out at once and filled by finish(), all files' parts in parallel and straight
// into their place, so loading needs the memory of the weights and no more. A tensor that the
// checkpoint lacks is remembered, and finish() raises one Error{kBadInput} that names all of them;
// a wrong shape or type is an error naming the tensor.
//
// Types in memory: matrices keep the checkpoint's type when computing in float32 (widening on the
// fly is exact and half the bytes) and become the compute type otherwise; vectors (norms, biases)
// are float32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_source.h"
#include "kernels/types/weight_matrix.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/huge_page_arena.h"

namespace sluice {

// The types of a model's arithmetic, from --dtype.
struct Numerics {
  DType compute = DType::kF32;  // kF32, kBF16 or kF16
  // Matrices of linear layers and experts in integers, --quantization: kRows (none), kInt8Tiles or
  // kInt4Tiles, with one scale for `quantization_group` columns, 32 or 128. On a CPU only.
  ops::WeightLayout quantization = ops::WeightLayout::kRows;
  std::int64_t quantization_group = 32;
  // Blocks of a GGUF file stay what they are where `quantization` asks for nothing else; false:
  // they are widened.
  bool keep_blocks = false;

  // Of the KV cache, where it is not that of products: kF32, kBF16 or kI8, --kv-cache-dtype.
  std::optional<DType> kv_stored = {};
  // Of index keys (DSA), where it is not that of the KV cache: kBF16 or kF8E4M3,
  // --index-cache-dtype.
  std::optional<DType> index_stored = {};

  // Inputs of matrix products. float16 has no product kernel on the CPU: its weights meet float32
  // inputs.
  DType gemm() const { return compute == DType::kBF16 ? DType::kBF16 : DType::kF32; }
  DType kv() const { return kv_stored.value_or(gemm()); }
  DType index() const { return index_stored.value_or(kv()); }
};

// Owns the memory of a model's weights.
class WeightStore {
 public:
  explicit WeightStore(Device device = {}) : device_(device) {}
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape);
  // The same out of `memory`, which the store keeps.
  Tensor take(const std::shared_ptr<HugePageArena>& memory, DType dtype,
              std::initializer_list<std::int64_t> shape);
  std::int64_t bytes() const { return bytes_; }

 private:
  Device device_;
  std::vector<Buffer> buffers_;
  std::shared_ptr<const HugePageArena> huge_pages_;
  std::int64_t bytes_ = 0;
};

// One checkpoint tensor, or some rows of one, among those that are fused: its name below the
// cursor, without ".weight" or ".bias", and its rows (outputs).
struct WeightPart {
  std::string_view name;
  std::int64_t rows = 0;
  std::int64_t first_row = 0;   // where the part begins in the tensor
  std::int64_t total_rows = 0;  // of the tensor; 0: the part is all of it
  bool transposed = false;      // stored [columns, rows], as GPT-2's Conv1D is

  std::int64_t stored_rows() const { return total_rows > 0 ? total_rows : rows; }
};

// Some of them: {{"q_proj", 64}, {"k_proj", 16}}, or a vector.
class WeightParts {
 public:
  WeightParts(std::initializer_list<WeightPart> parts) : parts_(parts) {}
  WeightParts(std::vector<WeightPart> parts)
      : parts_(std::move(parts)) {}  // NOLINT: a list is a list
  std::vector<WeightPart>::const_iterator begin() const { return parts_.begin(); }
  std::vector<WeightPart>::const_iterator end() const { return parts_.end(); }

 private:
  std::vector<WeightPart> parts_;
};

enum class Shard {
  kReplicated,  // every rank has all of it
  kColumn,      // a rank has an equal share of each part's rows (outputs)
  kRow,  // a rank has an equal share of the columns (inputs); the products of the ranks are summed
};

class WeightLoader;
class WeightStaging;
struct WeightTask;

// A place in the tree of names.
class Weights {
 public:
  Weights sub(std::string_view name) const;
  Weights sub(std::string_view name, int index) const;

  // Whether the checkpoint has `name` here; random weights have what the configuration expects.
  bool has(std::string_view name, bool by_config) const;
  // The full name, for messages.
  std::string path(std::string_view name) const;
  const Numerics& numerics() const;
  int tp_size() const;

  // Parts stacked by rows: [sum of rows, columns], this rank's share of it. Reads "<part>.weight".
  Tensor matrix(const WeightParts& parts, std::int64_t columns, Shard shard) const;
  // The same in its form(), repacked or quantised while it is read: that copy is the only one.
  ops::WeightMatrix packed(const WeightParts& parts, std::int64_t columns, Shard shard) const;
  // The same in float32 whatever the file's type: small matrices whose rounding would change
  // choices.
  Tensor matrix_f32(WeightPart part, std::int64_t columns) const;
  // "<part>.bias" of the parts, float32 [sum of rows]. For kRow only rank 0 has it: the ranks'
  // results are summed.
  Tensor bias(const WeightParts& parts, Shard shard) const;
  // A vector by its full name below the cursor ("norm.weight"), float32 [n].
  Tensor vector(std::string_view name, std::int64_t n, WeightInit init) const;
  // The same plus `offset`, for norms that store what their weights are more than 1.
  Tensor shifted_vector(std::string_view name, std::int64_t n, float offset) const;

  // Numbers that the model computed, such as rotary frequencies, where the device reads them:
  // float32 [n].
  Tensor constant(const std::vector<float>& values) const;

  // Lower level, for stacked experts: memory, and a tensor of the checkpoint (or a box of it) to
  // fill `place` with.
  DType matrix_dtype(std::initializer_list<std::string_view> full_names) const;
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) const;
  void fill(const Tensor& place, std::string_view name, std::vector<std::int64_t> shape,
            std::vector<AxisRange> ranges = {}, WeightInit init = WeightInit::kNormal) const;
  // Memory for `count` matrices of w's layout, rows, columns and group; sets w.data and w.count.
  void take(ops::WeightMatrix& w, std::int64_t count) const;
  // Reads a tensor (or a box of it) into rows [first, ...) of matrix `index`: straight into its
  // place where w is plain, else in pieces of a few MiB at most that are repacked as they come.
  void fill(const ops::WeightMatrix& w, std::int64_t index, std::int64_t first,
            std::string_view name, std::vector<std::int64_t> shape,
            std::vector<AxisRange> ranges = {}) const;
  // The same for a tensor stored [..., columns, rows].
  void fill_transposed(const ops::WeightMatrix& w, std::int64_t index, std::int64_t first,
                       std::string_view name, std::vector<std::int64_t> shape,
                       std::vector<AxisRange> ranges = {}) const;
  // Layout and group, and no memory yet, of a matrix that is made of these tensors: quantised where
  // the numerics say so or where all are blocks of one type and may stay so; else the layout that
  // ctx's instructions gain from for `dtype`.
  ops::WeightMatrix form(const std::vector<std::string>& full_names, DType dtype) const;
  // This rank's share of `extent` entries. Error{kBadInput} when they cannot be shared equally.
  AxisRange share(std::int64_t extent, std::string_view what) const;
  // Reads a tensor (or box) into passing memory and hands it to `use`, which puts it where it
  // belongs in another order.
  void read_then(std::string_view name, DType dtype, std::vector<std::int64_t> shape,
                 std::vector<AxisRange> ranges, std::function<void(const Tensor&)> use) const;

 private:
  friend class WeightLoader;
  void add(WeightTask task) const;
  AxisRange rows_of(const WeightPart& part, Shard shard) const;
  void fill_part(const ops::WeightMatrix& w, std::int64_t first, const WeightPart& part,
                 std::int64_t columns, AxisRange rows, AxisRange column_range) const;
  Weights(WeightLoader* loader, std::string prefix) : loader_(loader), prefix_(std::move(prefix)) {}

  WeightLoader* loader_;
  std::string prefix_;  // ends in '.', or empty
};

// A tensor (or box) that is still to be read.
struct WeightTask {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::vector<AxisRange> ranges;
  WeightInit init = WeightInit::kNormal;
  Tensor place;  // dense; undefined when `use` takes the box
  DType dtype{};
  // Gets the box as dense [rows, columns], or some rows of it from `row` on.
  std::function<void(const Tensor& rows, std::int64_t row)> use;
  bool as_blocks = false;         // as the file stores it: use gets uint8 [rows, bytes of a row]
  std::int64_t rows_at_once = 0;  // that are read and used before the next ones; 0: all
  // Bytes of the weights that this task alone fills, so that their pages can be made first;
  // undefined: not known.
  Tensor fills = {};
};

class WeightLoader {
 public:
  // `source` and `ctx` must outlive the loader. ctx.pool, where given, reads in parallel.
  WeightLoader(const WeightSource& source, Numerics numerics, DType stored_dtype, Context& ctx);

  Weights root() { return Weights(this, ""); }
  // Fills everything that was handed out. Returns the checkpoint's tensors that nobody asked for
  // and `is_known_extra` does not know.
  std::vector<std::string> finish(const std::function<bool(std::string_view)>& is_known_extra);
  WeightStore take_store() { return std::move(store_); }
  Device device() const { return ctx_.device; }
  // Whether what is repacked comes straight out of the page cache (WeightSource::lend), and not out
  // of a copy that stays in the processor's. So it is on Intel's servers, where it is a fifth
  // faster; on AMD's it is a quarter slower (docs/benchmarks/intel-amx.md).
  void reads_mapped(bool on) { reads_mapped_ = on; }
  // Whether weights of some size lie in HugePageArena, where the system has it. So they do with one
  // or two threads, which load a sixth faster; more of them wait for each other and lose a tenth.
  void prefault(bool makes) { prefaults_ = makes; }
  // From now on a name that begins with `from` is looked for as `to` and its rest: files keep one
  // model's tensors under several prefixes. The first that fits is taken.
  void rename(std::string from, std::string to) {
    renames_.emplace_back(std::move(from), std::move(to));
  }

 private:
  friend class Weights;
  void run(const WeightTask& task, Buffer& passing, WeightStaging& staging) const;
  // Memory on the nodes of the workers that multiply with it.
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape, Spread spread);

  const WeightSource& source_;
  Numerics numerics_;
  DType stored_dtype_;  // of random weights, which have no file
  Context& ctx_;
  int tp_rank_ = 0;
  int tp_size_ = 1;
  bool reads_mapped_ = false;
  bool prefaults_ = false;
  WeightStore store_;
  std::shared_ptr<HugePageArena> huge_pages_;  // once it was wanted; null where there is none
  std::vector<WeightTask> tasks_;
  std::vector<std::string> missing_;
  std::vector<std::pair<std::string, std::string>> renames_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace sluice
