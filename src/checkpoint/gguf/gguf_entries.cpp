#include "checkpoint/gguf/gguf_entries.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "checkpoint/gguf/gguf_architecture.h"

namespace sluice {
namespace {

// The parts of a stacked or shared MLP, in the order of GgufMixture::expert.
constexpr std::string_view kExpertParts[] = {"ffn_gate", "ffn_up", "ffn_down"};
constexpr std::string_view kRotary[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                        "rope_factors_short.weight"};
constexpr std::size_t kMaxEntries = 4'000'000;
constexpr std::int64_t kMaxLayers = 4096;

const GgufName* find_name(std::span<const GgufName> own, std::span<const GgufName> common,
                          std::string_view part) {
  for (const std::span<const GgufName> names : {own, common})
    for (const GgufName& row : names)
      if (row.gguf == part) return &row;
  return nullptr;
}

class EntryMaker {
 public:
  explicit EntryMaker(std::span<const std::unique_ptr<GgufFile>> files)
      : files_(files), file_(*files.front()), architecture_(gguf_architecture(*files.front())) {}

  std::vector<GgufEntry> run() {
    for (; file_index_ < files_.size(); ++file_index_)
      for (const GgufTensor& tensor : files_[file_index_]->tensors()) add(tensor);
    add_xielu();
    return std::move(entries_);
  }

 private:
  std::int64_t value(std::string_view name) const {
    const std::string key = std::string(architecture_.name) + '.' + std::string(name);
    const std::int64_t number = file_.required_integer(key);
    require(number >= 1 && number < 1 << 24, "{}: {} is {}; it must be at least 1", file_.name(),
            key, number);
    return number;
  }
  std::int64_t heads() const { return value("attention.head_count"); }
  std::int64_t kv_heads() const {
    const std::string name = std::string(architecture_.name) + ".attention.head_count_kv";
    return file_.has(name) ? value("attention.head_count_kv") : heads();
  }
  [[noreturn]] void misfit(const GgufTensor& tensor, std::string_view wanted) const {
    fail(ErrorKind::kBadInput, "{}: the tensor {} is [{}]; {}", file_.name(), tensor.name,
         fmt::join(tensor.shape, ", "), wanted);
  }

  void add(const GgufTensor& tensor) {
    if (std::ranges::find(kRotary, tensor.name) != std::end(kRotary)) return;
    constexpr std::string_view kLayer = "blk.";
    const std::string_view name = tensor.name;
    int layer = -1;
    const char* end = name.data() + name.size();
    const char* rest = nullptr;
    if (name.starts_with(kLayer)) {
      const auto [stop, error] = std::from_chars(name.data() + kLayer.size(), end, layer);
      if (error == std::errc() && stop != end && *stop == '.') rest = stop + 1;
    }
    const std::string_view tail =
        rest == nullptr || layer < 0 ? name
                                     : std::string_view(rest, static_cast<std::size_t>(end - rest));
    const std::size_t dot = tail.rfind('.');
    const std::string_view part = tail.substr(0, dot);
    const std::string suffix(dot == std::string_view::npos ? "" : tail.substr(dot));
    if (rest != nullptr && layer >= 0)
      return add_to_layer(tensor, fmt::format("{}{}.", architecture_.layers, layer), part, suffix);
    const GgufName* row = find_name(architecture_.ends, gguf_common_ends(), part);
    put(tensor, row == nullptr ? tensor.name : std::string(row->hf) + suffix);
  }

  void add_to_layer(const GgufTensor& tensor, const std::string& layer, std::string_view part,
                    const std::string& suffix) {
    if (architecture_.has_experts && add_to_mixture(tensor, layer, part, suffix)) return;
    if (part == "attn_k_b") return put_latent(tensor, layer);
    if (part == "attn_v_b") return;  // handled together with attn_k_b
    if (part == "ssm_ba") return put_gates(tensor, layer, suffix);
    if (part == "attn_qkv" && find_name(architecture_.names, {}, part) == nullptr)
      return put_qkv(tensor, layer, suffix);
    const GgufName* row = find_name(architecture_.names, gguf_common_names(), part);
    if (row == nullptr) {
      put(tensor, tensor.name);
      return;
    }
    const std::string name =
        layer + std::string(row->hf) + (row->is_whole ? std::string() : suffix);
    if (architecture_.hf == "StableLmForCausalLM" &&
        (part == "attn_q_norm" || part == "attn_k_norm"))
      return put_norms(tensor, layer, part == "attn_q_norm" ? "q" : "k");
    put(tensor, name);
    if (architecture_.transposed && tensor.shape.size() == 2) turn();
    if (architecture_.pairs_rotate && part == "attn_q") order_by_pairs(heads());
    if (architecture_.pairs_rotate && part == "attn_k") order_by_pairs(kv_heads());
    if (architecture_.qkv == GgufQkv::kGroups && part == "attn_qkv") order_by_groups();
    shape_recurrent(part);
    if (architecture_.tiles_heads) order_by_tiles(part);
  }

  // Whether the tensor is a part of a mixture.
  bool add_to_mixture(const GgufTensor& tensor, const std::string& layer, std::string_view part,
                      const std::string& suffix) {
    const GgufMixture& mixture = architecture_.mixture;
    const std::string block = layer + std::string(mixture.block) + '.';
    if (part == "ffn_gate_inp") {
      put(tensor, block + std::string(mixture.router) + suffix);
      return true;
    }
    if (part == "exp_probs_b") {
      put(tensor, block + std::string(mixture.correction));
      return true;
    }
    if (part == "ffn_gate_inp_shexp") {
      put_gate(tensor, block + "shared_expert_gate" + suffix);
      return true;
    }
    if (part == "ffn_gate_up_exps") {
      put_experts(tensor, block, 0, 2, suffix);
      put_experts(tensor, block, 1, 2, suffix);
      return true;
    }
    for (std::size_t i = 0; i < std::size(kExpertParts); ++i) {
      const std::string own(kExpertParts[i]);
      if (part == own + "_exps") {
        if (suffix == ".bias")
          put_expert_bias(tensor, block, i);
        else
          put_experts(tensor, block, i, 1, suffix);
        return true;
      }
      if (part == own + "_shexp" && !mixture.shared.empty()) {
        constexpr std::string_view kShared[] = {"gate_proj", "up_proj", "down_proj"};
        put(tensor, fmt::format("{}{}.{}{}", block, mixture.shared, kShared[i], suffix));
        return true;
      }
    }
    return false;
  }

  GgufEntry& put(const GgufTensor& tensor, std::string name) {
    GgufEntry entry;
    entry.tensor = &tensor;
    entry.info = {.name = std::move(name),
                  .dtype = tensor.dtype,
                  .shape = tensor.shape,
                  .file = static_cast<int>(file_index_),
                  .offset = tensor.offset,
                  .bytes = tensor.bytes,
                  .blocks = tensor.blocks};
    if (architecture_.adds_one && tensor.name.ends_with("norm.weight") &&
        !tensor.name.ends_with("ssm_norm.weight"))
      entry.change = ValueChange::kAddedOne;
    entries_.push_back(std::move(entry));
    // Limits the entries: in a stack of tiny experts an entry would need only a few bytes of the
    // file.
    require(entries_.size() <= kMaxEntries, "{}: the file has more than {} tensors and experts",
            file_.name(), kMaxEntries);
    return entries_.back();
  }

  // Rows [first, first + count) of the tensor's rows, as a matrix or vector of their own.
  GgufEntry& put_rows(const GgufTensor& tensor, std::string name, std::int64_t first,
                      std::vector<std::int64_t> shape) {
    GgufEntry& entry = put(tensor, std::move(name));
    const bool is_vector = tensor.shape.size() == 1;
    const std::uint64_t row_bytes =
        is_vector ? tensor.bytes / static_cast<std::uint64_t>(tensor.shape.front())
                  : tensor.row_bytes();
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + (is_vector ? 0 : 1) < shape.size(); ++i) rows *= shape[i];
    entry.info.shape = std::move(shape);
    entry.info.offset += row_bytes * static_cast<std::uint64_t>(first);
    entry.info.bytes = row_bytes * static_cast<std::uint64_t>(rows);
    entry.first_row = first;
    return entry;
  }

  // The file stores a vector, the model reads a matrix of one row.
  void put_gate(const GgufTensor& tensor, std::string name) {
    GgufEntry& entry = put(tensor, std::move(name));
    if (tensor.shape.size() == 1) entry.info.shape.insert(entry.info.shape.begin(), 1);
  }

  void order_by_pairs(std::int64_t num_heads) {
    GgufEntry& entry = entries_.back();
    const std::int64_t num_rows = entry.info.shape.front();
    require(entry.info.shape.size() <= 2 && num_rows % (2 * num_heads) == 0,
            "{}: the tensor {} is {}; {} heads of an even number of rows were expected",
            file_.name(), entry.tensor->name, entry.info.describe(), num_heads);
    entry.order = RowOrder::kPairs;
    entry.group = num_rows / num_heads;
  }

  void order_by_groups() {
    GgufEntry& entry = entries_.back();
    entry.heads = heads();
    entry.kv_heads = kv_heads();
    const std::int64_t all = entry.heads + 2 * entry.kv_heads;
    if (entry.info.shape.front() % all != 0 || entry.heads % entry.kv_heads != 0)
      misfit(*entry.tensor, fmt::format("rows of {} heads and {} key heads were expected",
                                        entry.heads, entry.kv_heads));
    entry.order = RowOrder::kGroups;
    entry.group = entry.info.shape.front() / all;
  }

  // A tensor whose columns were rows; a transposed block is not a block.
  void turn() {
    GgufEntry& entry = entries_.back();
    std::swap(entry.info.shape[0], entry.info.shape[1]);
    entry.order = RowOrder::kTransposed;
    widen(entry);
  }

  static void widen(GgufEntry& entry) {
    if (!entry.info.blocks) return;
    entry.info.stored_as = block_type_name(*entry.info.blocks);
    entry.info.blocks.reset();
    entry.info.dtype = DType::kF32;
    entry.info.bytes = static_cast<std::uint64_t>(entry.info.numel()) * 4;
  }

  // Kernels of convolutions have one more axis, and rates of decay were negated exponentials.
  void shape_recurrent(std::string_view part) {
    GgufEntry& entry = entries_.back();
    std::vector<std::int64_t>& shape = entry.info.shape;
    if (part.starts_with("ssm_conv1d") || part == "shortconv.conv") {
      if (entry.tensor->name.ends_with(".bias") || shape.empty()) return;
      const std::int64_t taps = shape.back();
      shape = {entry.info.numel() / std::max<std::int64_t>(1, taps), 1, taps};
    }
    if (part == "ssm_a") entry.change = ValueChange::kNegatedExponential;
    if (architecture_.hf == "Mamba2ForCausalLM" &&
        (part == "ssm_a" || part == "ssm_d" || part == "ssm_norm"))
      shape = {entry.info.numel()};
  }

  void order_by_tiles(std::string_view part) {
    GgufEntry& entry = entries_.back();
    const std::int64_t keys = value("ssm.group_count"), values = value("ssm.time_step_rank"),
                       width = value("ssm.inner_size") / values,
                       key_rows = 2 * keys * value("ssm.state_size");
    const bool by_head =
                   part == "ssm_alpha" || part == "ssm_beta" || part == "ssm_a" || part == "ssm_dt",
               by_width = part == "attn_gate" || part == "ssm_out",
               is_qkv =
                   part == "ssm_conv1d" ||
                   (part == "attn_qkv" && entry.info.name.find("linear_attn") != std::string::npos);
    if (!by_head && !by_width && !is_qkv) return;
    require(keys >= 1 && values % keys == 0, "{}: {} value heads for {} key heads", file_.name(),
            values, keys);
    entry.group = by_head ? 1 : width;
    entry.first_moved = is_qkv ? key_rows : 0;
    entry.heads = values;
    entry.kv_heads = keys;
    entry.order = part == "ssm_out" ? RowOrder::kTilesAcross : RowOrder::kTiles;
    const std::int64_t moved =
        part == "ssm_out" ? entry.info.shape.back() : entry.info.shape.front() - entry.first_moved;
    if (moved != values * entry.group)
      misfit(*entry.tensor, fmt::format("{} value heads of {} were expected", values, entry.group));
    if (entry.order == RowOrder::kTilesAcross && entry.info.blocks &&
        width % block_values(*entry.info.blocks) != 0)
      widen(entry);
  }

  // Rows of a key head: [b of its value heads | a of them].
  void put_gates(const GgufTensor& tensor, const std::string& layer, const std::string& suffix) {
    const std::int64_t keys = value("ssm.group_count"), values = value("ssm.time_step_rank");
    if (tensor.shape.size() != 2 || tensor.shape[0] != 2 * values || values % keys != 0)
      misfit(tensor, fmt::format("two rows for each of {} value heads were expected", values));
    for (const auto& [name, first] :
         {std::pair{"in_proj_b", std::int64_t{0}}, std::pair{"in_proj_a", values / keys}}) {
      GgufEntry& entry = put(tensor, layer + "linear_attn." + name + suffix);
      entry.info.shape[0] = values;
      entry.info.bytes /= 2;
      entry.order = RowOrder::kGates;
      entry.group = values / keys;
      entry.first_moved = first;
    }
  }

  // A fused tensor of a family that has separate ones.
  void put_qkv(const GgufTensor& tensor, const std::string& layer, const std::string& suffix) {
    const std::int64_t q = heads(), kv = kv_heads(), rows = tensor.shape.front();
    if (tensor.shape.size() > 2 || rows % (q + 2 * kv) != 0)
      misfit(tensor, fmt::format("rows of {} heads and {} key heads were expected", q, kv));
    std::int64_t first = 0;
    for (const auto& [part, count] : {std::pair{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}}) {
      std::vector<std::int64_t> shape = tensor.shape;
      shape.front() = rows / (q + 2 * kv) * count;
      const GgufName* row = find_name(architecture_.names, gguf_common_names(), part);
      put_rows(tensor, layer + std::string(row->hf) + suffix, first, shape);
      if (architecture_.pairs_rotate && std::string_view(part) != "attn_v") order_by_pairs(count);
      first += shape.front();
    }
  }

  // A list of norms, one a head.
  void put_norms(const GgufTensor& tensor, const std::string& layer, std::string_view which) {
    if (tensor.shape.size() != 2) misfit(tensor, "one row a head was expected");
    for (std::int64_t h = 0; h < tensor.shape[0]; ++h)
      put_rows(tensor, fmt::format("{}self_attn.{}_layernorm.norms.{}.weight", layer, which, h), h,
               {1, tensor.shape[1]})
          .info.shape = {tensor.shape[1]};
  }

  // `parts`: of how many matrices of an expert the tensor has the rows; this one is `part`.
  void put_experts(const GgufTensor& tensor, const std::string& block, std::size_t part,
                   std::int64_t parts, const std::string& suffix) {
    require(tensor.shape.size() == 3,
            "{}: the tensor {} has {} dimensions; 3 were expected: experts, rows, columns",
            file_.name(), tensor.name, tensor.shape.size());
    const std::int64_t num_experts = tensor.shape[0], num_rows = tensor.shape[1] / parts;
    if (tensor.shape[1] % parts != 0) misfit(tensor, "as many rows of gate as of up were expected");
    require(num_experts <= 65536, "{}: the tensor {} has {} experts; at most 65536 are allowed",
            file_.name(), tensor.name, num_experts);
    const std::int64_t own = parts == 1 ? 0 : static_cast<std::int64_t>(part);
    for (std::int64_t e = 0; e < num_experts; ++e)
      put_rows(
          tensor,
          fmt::format("{}experts.{}.{}{}", block, e, architecture_.mixture.expert[part], suffix),
          e * tensor.shape[1] + own * num_rows, {num_rows, tensor.shape[2]});
  }

  // Of all experts: [experts, gate rows then up rows], and [experts, rows of down].
  void put_expert_bias(const GgufTensor& tensor, const std::string& block, std::size_t part) {
    if (tensor.shape.size() != 2) misfit(tensor, "one row an expert was expected");
    if (part == 2) {
      put(tensor, block + "experts.down_proj_bias");
      return;
    }
    if (part == 1) return;  // handled together with those of gate
    std::string other = tensor.name;
    other.replace(other.rfind("ffn_gate_exps"), 13, "ffn_up_exps");
    GgufEntry& entry = put(tensor, block + "experts.gate_up_proj_bias");
    take_second(entry, other);
    if (entry.second->shape != tensor.shape || tensor.blocks || entry.second->blocks ||
        entry.second->dtype != tensor.dtype)
      misfit(tensor, fmt::format("{} must be like it", other));
    entry.order = RowOrder::kBeside;
    entry.info.shape[1] *= 2;
    entry.info.bytes *= 2;
  }

  void take_second(GgufEntry& entry, const std::string& other) {
    for (std::size_t i = 0; i < files_.size() && entry.second == nullptr; ++i)
      if ((entry.second = files_[i]->find_tensor(other)) != nullptr)
        entry.second_file = static_cast<int>(i);
    require(entry.second != nullptr, "{}: there is {}, but no {}", file_.name(), entry.tensor->name,
            other);
  }

  // kv_b in two tensors: attn_k_b [heads, latent, nope] with transposed heads, and attn_v_b [heads,
  // v, latent].
  void put_latent(const GgufTensor& tensor, const std::string& layer) {
    std::string other = tensor.name;
    other.replace(other.rfind("attn_k_b"), 8, "attn_v_b");
    GgufEntry& entry = put(tensor, layer + "self_attn.kv_b_proj.weight");
    take_second(entry, other);
    const GgufTensor* v = entry.second;
    require(tensor.shape.size() == 3 && v->shape.size() == 3 && tensor.shape[0] == v->shape[0] &&
                tensor.shape[1] == v->shape[2],
            "{}: the tensors {} and {} do not fit each other: [{}] and [{}]; expected are [heads, "
            "latent, nope] and [heads, v, latent]",
            file_.name(), tensor.name, other, fmt::join(tensor.shape, ", "),
            fmt::join(v->shape, ", "));
    entry.order = RowOrder::kLatent;
    entry.group = tensor.shape[2];
    entry.info.dtype = DType::kF32;
    // A transposed block is not a block.
    if (entry.info.blocks) entry.info.stored_as = block_type_name(*entry.info.blocks);
    entry.info.blocks.reset();
    entry.info.shape = {tensor.shape[0] * (tensor.shape[2] + v->shape[1]), tensor.shape[1]};
    entry.info.bytes = static_cast<std::uint64_t>(entry.info.shape[0]) *
                       static_cast<std::uint64_t>(entry.info.shape[1]) * 4;
  }

  // The numbers of xIELU are values of the file, one a layer.
  void add_xielu() {
    if (architecture_.hf != "ApertusForCausalLM") return;
    for (const auto& [name, shape] : {std::pair{"alpha_p", std::vector<std::int64_t>{1}},
                                      {"alpha_n", {1}},
                                      {"beta", {}},
                                      {"eps", {}}}) {
      const std::string key = std::string("xielu.") + name;
      require(file_.has(key), "{}: the key {} is missing; it must be a number a layer",
              file_.name(), key);
      const auto layers =
          static_cast<std::size_t>(std::min<std::int64_t>(value("block_count"), kMaxLayers));
      std::vector<double> numbers = file_.is_array(key)
                                        ? *file_.find_numbers(key)
                                        : std::vector<double>(layers, *file_.find_number(key));
      require(numbers.size() == layers, "{}: {} has {} entries; there are {} layers", file_.name(),
              key, numbers.size(), layers);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        GgufEntry entry;
        entry.info = {.name = fmt::format("{}{}.mlp.act_fn.{}", architecture_.layers, i, name),
                      .dtype = DType::kF32,
                      .shape = shape,
                      .file = 0,
                      .offset = 0,
                      .bytes = 4,
                      .blocks = {}};
        entry.constants = {static_cast<float>(numbers[i])};
        entries_.push_back(std::move(entry));
      }
    }
  }

  std::span<const std::unique_ptr<GgufFile>> files_;
  std::size_t file_index_ = 0;
  const GgufFile& file_;  // the first file, for values and messages
  const GgufArchitecture& architecture_;
  std::vector<GgufEntry> entries_;
};

}  // namespace

std::int64_t GgufEntry::stored_row(std::int64_t row) const {
  switch (order) {
    case RowOrder::kPairs: {
      const std::int64_t in_group = row % group, half = group / 2;
      return row - in_group + in_group % half * 2 + in_group / half;
    }
    case RowOrder::kGroups: {
      const std::int64_t queries = heads / kv_heads, head = row / group,
                         slot = head % (queries + 2), key = head / (queries + 2),
                         in_head = row % group;
      const std::int64_t stored = slot < queries    ? key * queries + slot
                                  : slot == queries ? heads + key
                                                    : heads + kv_heads + key;
      return stored * group + in_head;
    }
    case RowOrder::kTiles: {
      if (row < first_moved) return row;
      const std::int64_t head = (row - first_moved) / group, of_key = heads / kv_heads;
      return first_moved + (head % of_key * kv_heads + head / of_key) * group +
             (row - first_moved) % group;
    }
    case RowOrder::kGates:
      return row / group * 2 * group + first_moved + row % group;
    default:
      return row;
  }
}

std::vector<GgufEntry> gguf_entries(std::span<const std::unique_ptr<GgufFile>> files) {
  return EntryMaker(files).run();
}

}  // namespace sluice
