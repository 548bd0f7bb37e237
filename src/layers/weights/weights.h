// How layers get their weights: each layer states the checkpoint's names and its sharding where it
// is built.
//
//   WeightLoader loader(source, numerics, ctx);
//   Weights layer = loader.root().sub("model").sub("layers", 3);
//   Tensor q = layer.sub("self_attn").matrix({{"q_proj", 4096}}, 4096, Shard::kColumn);
//   ...
//   std::vector<std::string> unused = loader.finish(is_known_extra);
//   WeightStore store = loader.take_store();            // owns the memory of all tensors
//
// Tensors are returned at once. finish() fills them, all files in parallel, directly into their
// memory. So loading needs the memory of the weights and no more. A tensor that the checkpoint
// lacks is remembered, and finish() raises one Error{kBadInput} that names all of them. A wrong
// shape or type is an error naming the tensor.
//
// Types in memory: with float32 computation matrices keep the checkpoint's type (widening on the
// fly is exact and saves half the bytes). Otherwise matrices have the compute type. Vectors (norms,
// biases) are float32.
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
#include "experts/expert_map.h"
#include "kernels/types/weight.h"
#include "layers/weights/expert_layer.h"
#include "layers/weights/matrix_forms.h"
#include "layers/weights/numerics.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/huge_page_arena.h"

namespace sluice {

// Owns the memory of a model's weights.
class WeightStore {
 public:
  explicit WeightStore(Device device = {}) : device_(device) {}
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape);
  // Allocates from `memory`, which the store keeps alive.
  Tensor take(const std::shared_ptr<HugePageArena>& memory, DType dtype,
              std::initializer_list<std::int64_t> shape);
  // Addresses without memory, which nothing reads or writes. They may be those of other tensors.
  Tensor reserve(DType dtype, std::initializer_list<std::int64_t> shape);
  // Counts memory that is kept elsewhere.
  void count(std::int64_t bytes) { bytes_ += bytes; }
  std::int64_t bytes() const { return bytes_; }

 private:
  Device device_;
  std::vector<Buffer> buffers_;
  std::vector<std::shared_ptr<void>> reserved_;
  std::int64_t reserved_bytes_ = 0;  // of the last
  std::shared_ptr<const HugePageArena> huge_pages_;
  std::int64_t bytes_ = 0;
};

// One checkpoint tensor, or some of its rows, among the fused parts: its name below the cursor,
// without ".weight" or ".bias", and its rows (outputs).
struct WeightPart {
  std::string_view name;
  std::int64_t rows = 0;
  std::int64_t first_row = 0;   // first row of the part in the tensor
  std::int64_t total_rows = 0;  // rows of the tensor; 0: the part is the whole tensor
  bool transposed = false;      // stored [columns, rows], as GPT-2's Conv1D

  std::int64_t stored_rows() const { return total_rows > 0 ? total_rows : rows; }
};

// A list of parts: {{"q_proj", 64}, {"k_proj", 16}}, or a vector.
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
  kReplicated,  // every rank has the whole tensor
  kColumn,      // each rank has an equal share of each part's rows (outputs)
  kRow,  // each rank has an equal share of the columns (inputs); the ranks' GEMM outputs are summed
};

// What a rank has of the experts of a layer: all columns, or a share of them.
struct ExpertShare {
  std::vector<std::int64_t> experts;  // their numbers in the layer, ascending unless `moves`
  AxisRange columns;
  // Of all groups, where experts have more places than one; else empty.
  ExpertMap map = {};
  int groups = 1, own_group = 0;
  bool moves = false;  // places change while the model serves

  // Whether an expert of the layer is at other ranks alone.
  bool lacks_some(std::int64_t num_experts) const;
};
// `num_ranks` ranks in `groups` groups of equal size: a group has experts that no other group has,
// and its ranks share their columns. Groups have equal numbers of experts, or differ by one.
ExpertShare expert_share(std::int64_t experts, std::int64_t columns, int rank, int num_ranks,
                         int groups);
// The same by a map: a group has the experts of its places. Unless places move, they are put in
// ascending order of experts within a group.
ExpertShare placed_share(ExpertMap map, bool moves, std::int64_t columns, int rank, int num_ranks,
                         int groups);

// The maps of layers with experts, in the order of the layers. Further layers, as those of drafts,
// have the trivial map.
struct ExpertMaps {
  std::vector<ExpertMap> layers;  // empty: experts are dealt, and have one place each
  bool moves = false;
};

// One of the ranks that have equal shares.
struct RankShare {
  int rank = 0;
  int size = 1;
};

class SharedExperts;
class WeightLoader;
class WeightStaging;
struct WeightTask;

// A cursor in the tree of names.
class Weights {
 public:
  Weights sub(std::string_view name) const;
  Weights sub(std::string_view name, int index) const;

  // Whether the checkpoint has `name` here. Random weights have the tensors that the configuration
  // expects.
  bool has(std::string_view name, bool by_config) const;
  // Whether random weights stand for a matrix that their quantised checkpoint leaves plain.
  bool stays_plain(std::string_view name) const;
  // The full name, for messages.
  std::string path(std::string_view name) const;
  const Numerics& numerics() const;
  int tp_size() const { return ranks().size; }
  // The same place, of which all ranks have a share, also those of other groups of data-parallel
  // attention.
  Weights shared_by_all_ranks() const;
  // Back to the ranks of this group.
  Weights shared_by_group() const;
  // The same place, which every group has for itself: shared_by_all_ranks() stays in the group, and
  // experts have one place each.
  Weights within_group() const;
  // Where the experts of all ranks are; null: each rank has its own experts in its own memory.
  SharedExperts* shared_experts() const;
  // From now on take() gives this rank's part of stacks in shared_experts(), or no longer.
  void take_shared(bool is_on) const;
  Device device() const;
  // Says that another rank has all tensors here, in finish().
  void leave_out() const;

  // Parts stacked by rows: [sum of rows, columns], this rank's share. Reads "<part>.weight".
  Tensor matrix(const WeightParts& parts, std::int64_t columns, Shard shard) const;
  // The same in its form(), repacked or quantised while it is read: that copy is the only one.
  // `may_round`: not for a head, where rounding would change choices. Without it weights are not
  // rounded to FP8 or integers, and of the stored forms only blocks of a GGUF file are kept.
  ops::Weight packed(const WeightParts& parts, std::int64_t columns, Shard shard,
                     bool may_round = true) const;
  // The same in float32 whatever the file's type: small matrices whose rounding would change
  // choices.
  Tensor matrix_f32(WeightPart part, std::int64_t columns) const;
  // "<part>.bias" of the parts, float32 [sum of rows]. For kRow only rank 0 has it, since the
  // ranks' results are summed.
  Tensor bias(const WeightParts& parts, Shard shard) const;
  // A vector by its full name below the cursor ("norm.weight"), float32 [n].
  Tensor vector(std::string_view name, std::int64_t n, WeightInit init) const;
  // As vector(), plus `offset`: for norms that store their weight minus 1.
  Tensor shifted_vector(std::string_view name, std::int64_t n, float offset) const;

  // WeightSource::small_tensor(), read at once.
  std::vector<float> small_tensor(std::string_view name) const;
  // Numbers that the model computed, such as rotary frequencies, in device memory: float32 [n].
  Tensor constant(const std::vector<float>& values) const;

  // Lower level, for stacked experts: allocates memory, and fills `place` with a tensor of the
  // checkpoint (or a box of it).
  DType matrix_dtype(std::initializer_list<std::string_view> full_names) const;
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) const;
  void fill(const Tensor& place, std::string_view name, std::vector<std::int64_t> shape,
            std::vector<AxisRange> ranges = {}, WeightInit init = WeightInit::kNormal) const;
  // Memory for `count` matrices of w's layout, rows, columns and group; sets w.data and w.count.
  void take(ops::Weight& w, std::int64_t count) const;
  // Reads a tensor (or a box of it) into rows [first, ...) of matrix `index`: straight into its
  // place where w is in rows, else in pieces of a few MiB at most that are repacked as they come.
  void fill(const ops::Weight& w, std::int64_t index, std::int64_t first, std::string_view name,
            std::vector<std::int64_t> shape, std::vector<AxisRange> ranges = {}) const;
  // The same for a tensor stored [..., columns, rows].
  void fill_transposed(const ops::Weight& w, std::int64_t index, std::int64_t first,
                       std::string_view name, std::vector<std::int64_t> shape,
                       std::vector<AxisRange> ranges = {}) const;
  // A weight without memory that is made of these tensors: quantised where the numerics say so or
  // where all are blocks of one type and may stay so, else of `dtype`; in the layout of ctx's
  // device.
  ops::Weight form(const std::vector<std::string>& full_names, DType dtype) const;
  // Error{kBadInput}: ranks would share a block of a file that w, in tiles, keeps.
  void require_whole_blocks(const ops::Weight& w, std::string_view name, AxisRange columns) const;
  // This rank's share of `extent` entries. Error{kBadInput} when they cannot be shared equally.
  AxisRange share(std::int64_t extent, std::string_view what) const;
  // This rank's experts of a layer, and its columns of each (WeightLoader::share_experts).
  ExpertShare share_experts(std::int64_t experts, std::int64_t width) const;
  // A layer whose experts have places by a map: WeightLoader::take_expert_layers() gives it.
  void add(ExpertLayer layer) const;
  // The tensor is another rank's: it is not read, and not said to be unused.
  void leave(std::string_view name) const;
  // Reads a tensor (or box) into temporary memory and passes it to `use`, which writes it to its
  // destination in another order.
  void read_then(std::string_view name, DType dtype, std::vector<std::int64_t> shape,
                 std::vector<AxisRange> ranges, std::function<void(const Tensor&)> use) const;

 private:
  friend class WeightLoader;
  friend class ExpertBlocks;
  friend class ExpertFragments;
  friend class StackedExperts;
  friend class Fp8Weights;
  friend class FragmentWeights;
  friend class Int8Weights;
  friend class MatrixParts;
  void add(WeightTask task) const;
  void note_rounded(const ops::Weight& w, std::string_view name) const;
  AxisRange rows_of(const WeightPart& part, Shard shard) const;
  void fill_part(const ops::Weight& w, std::int64_t first, const WeightPart& part,
                 std::int64_t columns, AxisRange rows, AxisRange column_range) const;
  // Who has a share.
  enum class Sharers : std::uint8_t {
    kGroup,        // the ranks of a group
    kAll,          // all ranks
    kWithinGroup,  // the ranks of a group, in feed-forward layers too
  };
  Weights(WeightLoader* loader, std::string prefix, Sharers sharers = Sharers::kGroup)
      : loader_(loader), prefix_(std::move(prefix)), sharers_(sharers) {}
  // The same place of others, unless it stays within the group.
  Weights of(Sharers sharers) const;
  const RankShare& ranks() const;

  WeightLoader* loader_;
  std::string prefix_;  // ends in '.', or empty
  Sharers sharers_;
};

// A tensor (or box) that is still to be read.
struct WeightTask {
  std::string name;
  std::vector<std::int64_t> shape;  // shape of the whole tensor
  std::vector<AxisRange> ranges;
  WeightInit init = WeightInit::kNormal;
  Tensor place;  // dense; undefined when `use` takes the box
  DType dtype{};
  // Gets the box as dense [rows, columns], or some rows of it from `row` on.
  std::function<void(const Tensor& rows, std::int64_t row)> use;
  bool as_blocks = false;         // as the file stores it: `use` gets uint8 [rows, bytes of a row]
  std::int64_t rows_at_once = 0;  // rows that are read and used at once; 0: all
  // Bytes of the weights that only this task fills, so that their pages can be prefaulted;
  // undefined: unknown.
  Tensor fills = {};
  std::function<void()> read = {};  // instead of all others: reads and packs by itself
  bool int8_rows = false;           // of the weight that takes it: ops::Weight
};

class WeightLoader {
 public:
  // `source` and `ctx` must outlive the loader. ctx.pool, if set, reads in parallel.
  WeightLoader(const WeightSource& source, Numerics numerics, DType stored_dtype, Context& ctx);

  Weights root() { return Weights(this, ""); }
  // Fills all tensors. Returns the checkpoint's tensors that no layer uses and `is_known_extra`
  // does not know.
  std::vector<std::string> finish(const std::function<bool(std::string_view)>& is_known_extra);
  WeightStore take_store() { return std::move(store_); }
  // Error{kBadInput} naming the tensors that the checkpoint lacks, as finish() does.
  void require_all() const;
  // From now on large tensors have addresses without memory, so finish() must not be called:
  // for forms().
  void only_plan() { only_plans_ = true; }
  // The form of each quantised matrix that the layers asked for; before finish().
  std::vector<MatrixForm> forms() const;
  Device device() const { return ctx_.device; }
  // Experts are dealt over `groups` groups of ranks (ExpertShare), which divide the ranks.
  // `maps`: by these, layer by layer.
  void share_experts(int groups, ExpertMaps maps = {}) {
    expert_groups_ = groups;
    expert_maps_ = std::move(maps);
  }
  // Experts are in memory of all ranks, which outlives the model.
  void keep_experts_in(SharedExperts* memory) { shared_experts_ = memory; }
  std::vector<ExpertLayer> take_expert_layers() { return std::move(expert_layers_); }
  // Feed-forward layers are shared by these ranks, and all others by those of ctx.communicator.
  void share_feed_forward(const RankShare& ranks) { all_ranks_ = ranks; }
  // Whether what is repacked comes straight out of the page cache (WeightSource::lend), and not out
  // of a copy that stays in the processor's. So it is on Intel's servers, where it is a fifth
  // faster; on AMD's it is a quarter slower (docs/benchmarks/intel-amx.md).
  void reads_mapped(bool on) { reads_mapped_ = on; }
  // Whether large weights are in HugePageArena, if the system has it. Tuned on 2026-11-24: one or
  // two threads load a sixth faster; more threads wait for each other and lose a tenth
  // (docs/benchmarks/intel-amx.md).
  void prefault(bool makes) { prefaults_ = makes; }
  // From now on `from` at the beginning of a name is replaced by `to`: files keep one model's
  // tensors under several prefixes. The first existing name is used.
  void rename(std::string from, std::string to) {
    renames_.emplace_back(std::move(from), std::move(to));
  }

 private:
  friend class Weights;
  friend class ExpertBlocks;
  friend class ExpertFragments;
  friend class StackedExperts;
  friend class Fp8Weights;
  friend class FragmentWeights;
  friend class Int8Weights;
  friend class MatrixParts;
  void run(const WeightTask& task, Buffer& passing, WeightStaging& staging) const;
  // Matrices whose names begin so are widened, which finish() says.
  void note_widened(std::vector<std::string> names, std::string reason);
  // A matrix is rounded while it is read (Numerics::quantization), which finish() says.
  void note_rounded(std::string name) { rounded_.insert(std::move(name)); }
  void log_rounded() const;
  // Memory on the nodes of the workers that multiply with the tensor.
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape, Spread spread);

  const WeightSource& source_;
  Numerics numerics_;
  DType stored_dtype_;  // type of random weights, which have no file
  Context& ctx_;
  RankShare ranks_, all_ranks_;
  int expert_groups_ = 1;
  ExpertMaps expert_maps_;
  std::size_t num_mapped_ = 0;  // layers that have got their map
  std::vector<ExpertLayer> expert_layers_;
  SharedExperts* shared_experts_ = nullptr;
  bool takes_shared_ = false;
  bool reads_mapped_ = false;
  bool prefaults_ = false;
  WeightStore store_;
  std::shared_ptr<HugePageArena> huge_pages_;  // created on first use; null if unavailable
  std::vector<WeightTask> tasks_;
  // Numbers that tasks fill on the host, and their place on the device.
  std::vector<std::pair<Tensor, std::shared_ptr<std::vector<float>>>> images_;
  std::vector<std::string> missing_;
  // Beginnings of the names of quantised matrices that are widened, with the reason.
  std::vector<std::pair<std::vector<std::string>, std::string>> widened_;
  std::set<std::string, std::less<>> rounded_;
  bool only_plans_ = false;
  std::vector<std::pair<std::string, std::string>> renames_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> left_out_;  // beginnings of names
};

}  // namespace sluice
