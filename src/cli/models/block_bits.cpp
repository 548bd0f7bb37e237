#include "cli/models/block_bits.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>

#include "cli/models/model_size.h"
#include "kernels/types/int_fragments.h"
#include "layers/weights/block_formats.h"
#include "ops/packing.h"

namespace sluice {
namespace {

// Finds the kind of a matrix by its name.
class Kinds {
 public:
  explicit Kinds(const ModelConfig& config) {
    const DecoderSpec spec = names_of(config);
    const EndNames& ends = spec.ends;
    embedding_ = weight_of(ends.body, ends.embedding);
    head_ = weight_of("", ends.head);
    const MoeNames& moe = spec.moe;
    for (const std::string& name :
         {weight_of(ends.body, ends.positions), weight_of(moe.block, moe.router),
          weight_of(moe.block, moe.shared_gate), weight_of("", "kv_b_proj"),
          weight_of("indexer", "weights_proj")})
      if (!name.empty()) plain_.push_back(name);
  }

  // Null: the matrix has none.
  BlockBits::Kind* of(BlockBits& bits, std::string_view name) const {
    if (!name.ends_with(".weight")) return nullptr;  // biases of experts are stacks, too
    if (is(name, embedding_)) return &bits.embedding;
    if (is(name, head_)) return &bits.head;
    if (name.find(".experts.") != name.npos) return &bits.experts;
    const bool is_plain =
        std::ranges::any_of(plain_, [&](const std::string& plain) { return is(name, plain); });
    return is_plain ? nullptr : &bits.linear;
  }

 private:
  static std::string weight_of(std::string_view outer, std::string_view inner) {
    if (inner.empty()) return {};
    return fmt::format("{}{}{}.weight", outer, outer.empty() ? "" : ".", inner);
  }
  static bool is(std::string_view name, std::string_view ending) {
    return name == ending || (name.ends_with(ending) && name.size() > ending.size() &&
                              name[name.size() - ending.size() - 1] == '.');
  }

  std::string embedding_, head_;
  std::vector<std::string> plain_;
};

// Of a matrix whose blocks stay. A GPU has fragments, and a CPU tiles.
std::int64_t bytes_of(const Context& cpu, const Numerics& numerics, const TensorInfo& info) {
  ops::Weight w;
  if (numerics.int_fragments) {
    w.format = format_of_blocks(*info.blocks);
    w.group = kBlockValues;
  } else {
    w = ops::weight_form(cpu, format_of_blocks(*info.blocks), numerics.gemm(), kBlockValues);
  }
  w.rows = info.shape[0];
  w.columns = info.shape[1];
  return numerics.int_fragments ? ops::fragment_bytes(w) : ops::packed_bytes(cpu, w);
}

}  // namespace

BlockBits block_bits(const WeightSource& source, const ModelConfig& config,
                     const Numerics& numerics, const std::vector<MatrixForm>& forms) {
  std::unordered_set<std::string_view> kept, used;
  for (const MatrixForm& form : forms) {
    used.insert(form.name);
    if (form.widened_because.empty()) kept.insert(form.name);
  }
  Context cpu;
  cpu.cpu_isa = detect_cpu_isa();
  const Kinds kinds(config);
  BlockBits out;
  std::map<BlockBits::Kind*, std::pair<double, double>> sums;  // bytes and elements
  std::map<BlockType, std::int64_t> elements;
  for (const std::string& name : source.names()) {
    const TensorInfo& info = *source.find(name);
    BlockBits::Kind* const kind = info.shape.size() == 2 ? kinds.of(out, name) : nullptr;
    if (kind == nullptr || (info.blocks && !used.contains(name))) continue;
    const bool stays = info.blocks && kept.contains(name);
    ++kind->matrices;
    kind->in_blocks += stays;
    if (stays) elements[*info.blocks] += info.numel();
    auto& [bytes, count] = sums[kind];
    bytes += static_cast<double>(stays ? bytes_of(cpu, numerics, info)
                                       : info.numel() * dtype_size(numerics.compute));
    count += static_cast<double>(info.numel());
  }
  for (const auto& [kind, sum] : sums) kind->bits = 8 * sum.first / sum.second;
  std::vector<std::pair<std::int64_t, BlockType>> order;
  for (const auto& [type, count] : elements) order.emplace_back(count, type);
  std::ranges::sort(order, std::greater<>());
  for (const auto& [count, type] : order) out.types.emplace_back(block_type_name(type));
  return out;
}

std::string BlockBits::describe(std::string_view plain) const {
  if (!stays()) return std::string(plain);
  std::vector<std::string> places;
  bool all = true;
  for (const auto& [kind, name] : {std::pair{&linear, "linear layers"},
                                   {&experts, "experts"},
                                   {&head, "the head"},
                                   {&embedding, "the embedding"}}) {
    all = all && kind->in_blocks == kind->matrices;
    if (kind->in_blocks == 0) continue;
    places.emplace_back(
        kind->in_blocks == kind->matrices
            ? name
            : fmt::format("{} of {} matrices of {}", kind->in_blocks, kind->matrices, name));
  }
  std::string text = fmt::format("{} blocks as in the file", fmt::join(types, ", "));
  if (all) return text;
  for (std::size_t i = 0; i < places.size(); ++i)
    text += (i == 0 ? " in " : i + 1 < places.size() ? ", " : " and ") + places[i];
  return text + fmt::format(", {} in others", plain);
}

}  // namespace sluice
