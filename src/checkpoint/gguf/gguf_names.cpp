#include "checkpoint/gguf/gguf_names.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace sluice {
namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .hf = "LlamaForCausalLM", .pairs_rotate = true},
    {.name = "llama",
     .hf = "MixtralForCausalLM",
     .has_experts = true,
     .pairs_rotate = true,
     .block = "block_sparse_moe",
     .expert = {"w1", "w3", "w2"}},
    {.name = "qwen2", .hf = "Qwen2ForCausalLM"},
    {.name = "qwen3", .hf = "Qwen3ForCausalLM"},
    {.name = "qwen2moe",
     .hf = "Qwen2MoeForCausalLM",
     .has_experts = true,
     .shared = "shared_expert"},
    {.name = "qwen3moe", .hf = "Qwen3MoeForCausalLM", .has_experts = true},
    {.name = "deepseek2",
     .hf = "DeepseekV2ForCausalLM",
     .has_experts = true,
     .shared = "shared_experts"},
};

struct Name {
  std::string_view gguf;
  std::string_view hf;
};
constexpr Name kTopNames[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                              {"output_norm.weight", "model.norm.weight"},
                              {"output.weight", "lm_head.weight"}};
// Names below blk.<n>. and model.layers.<n>., before ".weight" or ".bias".
constexpr Name kLayerNames[] = {{"attn_norm", "input_layernorm"},
                                {"ffn_norm", "post_attention_layernorm"},
                                {"attn_q", "self_attn.q_proj"},
                                {"attn_k", "self_attn.k_proj"},
                                {"attn_v", "self_attn.v_proj"},
                                {"attn_output", "self_attn.o_proj"},
                                {"attn_q_norm", "self_attn.q_norm"},
                                {"attn_k_norm", "self_attn.k_norm"},
                                {"attn_q_a", "self_attn.q_a_proj"},
                                {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                {"attn_q_b", "self_attn.q_b_proj"},
                                {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                {"attn_kv_b", "self_attn.kv_b_proj"},
                                {"ffn_gate", "mlp.gate_proj"},
                                {"ffn_up", "mlp.up_proj"},
                                {"ffn_down", "mlp.down_proj"}};
// The parts of a stacked or shared MLP, in the order of GgufArchitecture::expert.
constexpr std::string_view kExpertParts[] = {"ffn_gate", "ffn_up", "ffn_down"};

constexpr std::size_t kMaxEntries = 4'000'000;

std::string list_of_architectures() {
  std::string list;
  for (const GgufArchitecture& row : kArchitectures)
    if (list.find(row.name) == std::string::npos)
      list += (list.empty() ? "" : ", ") + std::string(row.name);
  return list;
}

class EntryMaker {
 public:
  explicit EntryMaker(std::span<const std::unique_ptr<GgufFile>> files)
      : files_(files), file_(*files.front()), architecture_(gguf_architecture(*files.front())) {
    const GgufFile& file = file_;
    const std::string prefix = std::string(architecture_.name) + ".attention.";
    num_heads_ = file.required_integer(prefix + "head_count");
    num_kv_heads_ = file.find_integer(prefix + "head_count_kv").value_or(num_heads_);
    require(num_heads_ >= 1 && num_kv_heads_ >= 1,
            "{}: {}head_count is {} and head_count_kv {}; they must be at least 1", file.name(),
            prefix, num_heads_, num_kv_heads_);
  }

  std::vector<GgufEntry> run() {
    for (; file_index_ < files_.size(); ++file_index_)
      for (const GgufTensor& tensor : files_[file_index_]->tensors()) add(tensor);
    return std::move(entries_);
  }

 private:
  void add(const GgufTensor& tensor) {
    if (tensor.name == "rope_freqs.weight") return;
    for (const Name& row : kTopNames)
      if (row.gguf == tensor.name) return put(tensor, std::string(row.hf));
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
        rest == nullptr ? "" : std::string_view(rest, static_cast<std::size_t>(end - rest));
    const std::size_t dot = tail.rfind('.');
    if (layer < 0 || dot == std::string_view::npos) return put(tensor, tensor.name);
    add_to_layer(tensor, fmt::format("model.layers.{}.", layer), tail.substr(0, dot),
                 std::string(tail.substr(dot)));
  }

  void add_to_layer(const GgufTensor& tensor, const std::string& layer, std::string_view part,
                    const std::string& suffix) {
    const std::string block = layer + std::string(architecture_.block) + '.';
    if (architecture_.has_experts) {
      if (part == "ffn_gate_inp") return put(tensor, block + "gate" + suffix);
      if (part == "exp_probs_b") return put(tensor, block + "gate.e_score_correction_bias");
      if (part == "ffn_gate_inp_shexp")
        return put_gate(tensor, block + "shared_expert_gate" + suffix);
      for (std::size_t i = 0; i < std::size(kExpertParts); ++i) {
        if (part == std::string(kExpertParts[i]) + "_exps")
          return put_experts(tensor, block, i, suffix);
        if (part == std::string(kExpertParts[i]) + "_shexp" && !architecture_.shared.empty())
          return put(tensor, fmt::format("{}{}.{}{}", block, architecture_.shared,
                                         architecture_.expert[i], suffix));
      }
    }
    if (part == "attn_k_b" || part == "attn_v_b")
      return put_latent(tensor, layer, part == "attn_k_b");
    for (const Name& row : kLayerNames) {
      if (row.gguf != part) continue;
      put(tensor, layer + std::string(row.hf) + suffix);
      if (architecture_.pairs_rotate && part == "attn_q") order_by_pairs(num_heads_);
      if (architecture_.pairs_rotate && part == "attn_k") order_by_pairs(num_kv_heads_);
      return;
    }
    put(tensor, tensor.name);
  }

  void put(const GgufTensor& tensor, std::string name) {
    GgufEntry entry;
    entry.tensor = &tensor;
    entry.info = {.name = std::move(name),
                  .dtype = tensor.dtype,
                  .shape = tensor.shape,
                  .file = static_cast<int>(file_index_),
                  .offset = tensor.offset,
                  .bytes = tensor.bytes,
                  .blocks = tensor.blocks};
    entries_.push_back(std::move(entry));
    // Limits the entries: in a stack of tiny experts an entry would need only a few bytes of the
    // file.
    require(entries_.size() <= kMaxEntries, "{}: the file has more than {} tensors and experts",
            file_.name(), kMaxEntries);
  }

  // The file stores a vector, the model reads a matrix of one row.
  void put_gate(const GgufTensor& tensor, std::string name) {
    put(tensor, std::move(name));
    if (tensor.shape.size() == 1)
      entries_.back().info.shape.insert(entries_.back().info.shape.begin(), 1);
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

  void put_experts(const GgufTensor& tensor, const std::string& block, std::size_t part,
                   const std::string& suffix) {
    require(tensor.shape.size() == 3,
            "{}: the tensor {} has {} dimensions; 3 were expected: experts, rows, columns",
            file_.name(), tensor.name, tensor.shape.size());
    const std::int64_t num_experts = tensor.shape[0], num_rows = tensor.shape[1];
    require(num_experts <= 65536, "{}: the tensor {} has {} experts; at most 65536 are allowed",
            file_.name(), tensor.name, num_experts);
    const std::uint64_t bytes = tensor.row_bytes() * static_cast<std::uint64_t>(num_rows);
    for (std::int64_t e = 0; e < num_experts; ++e) {
      put(tensor, fmt::format("{}experts.{}.{}{}", block, e, architecture_.expert[part], suffix));
      GgufEntry& entry = entries_.back();
      entry.info.shape.erase(entry.info.shape.begin());
      entry.info.offset += bytes * static_cast<std::uint64_t>(e);
      entry.info.bytes = bytes;
      entry.first_row = e * num_rows;
    }
  }

  // kv_b in two tensors: attn_k_b [heads, latent, nope] with transposed heads, and attn_v_b [heads,
  // v, latent].
  void put_latent(const GgufTensor& tensor, const std::string& layer, bool is_k) {
    if (!is_k) return;  // handled together with attn_k_b
    std::string other = tensor.name;
    other.replace(other.rfind("attn_k_b"), 8, "attn_v_b");
    const GgufTensor* v = nullptr;
    int second_file = 0;
    for (std::size_t i = 0; i < files_.size() && v == nullptr; ++i)
      if ((v = files_[i]->find_tensor(other)) != nullptr) second_file = static_cast<int>(i);
    require(v != nullptr, "{}: there is {}, but no {}", file_.name(), tensor.name, other);
    require(tensor.shape.size() == 3 && v->shape.size() == 3 && tensor.shape[0] == v->shape[0] &&
                tensor.shape[1] == v->shape[2],
            "{}: the tensors {} and {} do not fit each other: [{}] and [{}]; expected are [heads, "
            "latent, nope] and "
            "[heads, v, latent]",
            file_.name(), tensor.name, other, fmt::join(tensor.shape, ", "),
            fmt::join(v->shape, ", "));
    put(tensor, layer + "self_attn.kv_b_proj.weight");
    GgufEntry& entry = entries_.back();
    entry.second = v;
    entry.second_file = second_file;
    entry.order = RowOrder::kLatent;
    entry.group = tensor.shape[2];
    entry.info.dtype = DType::kF32;
    entry.info.blocks.reset();  // a transposed block is not a block
    entry.info.shape = {tensor.shape[0] * (tensor.shape[2] + v->shape[1]), tensor.shape[1]};
    entry.info.bytes = static_cast<std::uint64_t>(entry.info.shape[0]) *
                       static_cast<std::uint64_t>(entry.info.shape[1]) * 4;
  }

  std::span<const std::unique_ptr<GgufFile>> files_;
  std::size_t file_index_ = 0;
  const GgufFile& file_;  // the first file, for values and messages
  const GgufArchitecture& architecture_;
  std::int64_t num_heads_ = 0;
  std::int64_t num_kv_heads_ = 0;
  std::vector<GgufEntry> entries_;
};

}  // namespace

const GgufArchitecture& gguf_architecture(const GgufFile& file) {
  const std::int64_t part = file.find_integer("split.no").value_or(0);
  require(part == 0,
          "{}: this is part {} of a split file; name its first part, which has the configuration",
          file.name(), part + 1);
  const std::string_view name = file.required_string("general.architecture");
  const bool has_experts = file.find_integer(std::string(name) + ".expert_count").value_or(0) > 0;
  const GgufArchitecture* same = nullptr;
  for (const GgufArchitecture& row : kArchitectures) {
    if (row.name != name) continue;
    same = &row;
    if (row.has_experts == has_experts) return row;
  }
  require(same == nullptr, "{}: {}.expert_count is missing or 0; the architecture {} has experts",
          file.name(), name, name);
  fail(ErrorKind::kBadInput,
       "{}: general.architecture is {}, which is not supported; supported are {}", file.name(),
       name.substr(0, 64), list_of_architectures());
}

std::vector<GgufEntry> gguf_entries(std::span<const std::unique_ptr<GgufFile>> files) {
  return EntryMaker(files).run();
}

}  // namespace sluice
