#include "attention/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "attention/hybrid.h"
#include "attention/reference.h"
#include "base/error.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/index_plan.h"
#include "kernels/cuda/attention/mla_plan.h"

namespace sluice {
namespace {

using Why = std::string (*)(const AttentionOptions&, const AttentionShape&);

// "" if GPU kernels may run at all; else the reason.
std::string needs_gpu(const AttentionOptions& o, int sm) {
  if (o.device != DeviceKind::kCuda)
    return "it needs an NVIDIA GPU, and this model computes on the CPU";
  if (o.sm < sm)
    return fmt::format("it needs a GPU of compute capability {}.{}, and this one has {}.{}",
                       sm / 10, sm % 10, o.sm / 10, o.sm % 10);
  return "";
}
// As needs_gpu(), for rows whose kernels choose the KV splits by the batch.
std::string needs_freedom(const AttentionOptions& o, int sm) {
  if (std::string why = needs_gpu(o, sm); !why.empty()) return why;
  if (o.deterministic)
    return "--deterministic takes the kernels of one order of summation that 'native' and "
           "'reference' know";
  return "";
}

std::string why_not_native(const AttentionOptions& o, const AttentionShape&) {
  return needs_gpu(o, 80);
}

// Why a row whose kernels read keys and values of heads cannot serve this model; "" if it can.
std::string why_not_heads(const AttentionOptions& o, const AttentionShape& s, int sm, bool tiles) {
  if (std::string why = needs_freedom(o, sm); !why.empty()) return why;
  if (s.mla) return "the model keeps latents (MLA), and it reads keys and values of heads";
  if (s.has_score_mods)
    return "the model has soft caps, slopes or chunks, and it knows a scale, a window and sinks";
  // Either a run of rows of one sequence, or one row per sequence.
  const cuda::AttentionInputs inputs{.tokens = tiles ? 4096 : 64,
                                     .seqs = tiles ? 1 : 64,
                                     .group = s.group,
                                     .dim = s.head_dim,
                                     .value_dim = s.value_dim,
                                     .plane = s.kv_dtype,
                                     .is_widened = tiles,  // the tiles' form of e4m3
                                     .sm = o.sm};
  const cuda::AttentionChoice choice = cuda::choose_attention(inputs);
  if (choice == (tiles ? cuda::AttentionChoice::kTiles : cuda::AttentionChoice::kSingleRows))
    return "";
  return fmt::format(
      "it knows bfloat16 and e4m3 heads of {} in groups of at most {}; the model has {} heads of "
      "{} and {}, groups of {}",
      tiles ? "64 or 128" : "64, 96, 128 or 256", cuda::kMaxTiledGroup, dtype_name(s.kv_dtype),
      s.head_dim, s.value_dim, s.group);
}
std::string why_not_fa3(const AttentionOptions& o, const AttentionShape& s) {
  return why_not_heads(o, s, 90, true);
}
std::string why_not_flashinfer(const AttentionOptions& o, const AttentionShape& s) {
  return why_not_heads(o, s, 80, false);
}

std::string why_not_latents(const AttentionOptions& o, const AttentionShape& s) {
  if (std::string why = needs_freedom(o, 90); !why.empty()) return why;
  if (!s.mla) return "the model keeps keys and values of heads, and it reads latents (MLA)";
  if (cuda::mla_is_fast({.latent = s.latent, .rope = s.rope, .plane = s.kv_dtype, .sm = o.sm}))
    return "";
  return fmt::format(
      "it knows latents of {} + {} in bfloat16 and e4m3; the model has {} ones of {} + {}",
      cuda::kMlaLatent, cuda::kMlaRope, dtype_name(s.kv_dtype), s.latent, s.rope);
}
std::string why_not_flashinfer_mla(const AttentionOptions& o, const AttentionShape& s) {
  if (std::string why = why_not_latents(o, s); !why.empty()) return why;
  return s.index_topk > 0 ? "the model chooses its keys with an indexer; 'dsa' does that" : "";
}
std::string why_not_dsa(const AttentionOptions& o, const AttentionShape& s) {
  if (std::string why = needs_freedom(o, 90); !why.empty()) return why;
  if (s.index_topk == 0) return "the model has no indexer that would choose keys";
  if (std::string why = why_not_latents(o, s); !why.empty()) return why;
  const DType keys = s.index_dtype == DType::kF8E4M3 ? DType::kU8 : s.index_dtype;
  if (cuda::index_is_fast({.heads = s.index_heads, .dim = s.index_dim, .plane = keys, .sm = o.sm}))
    return "";
  return fmt::format("it knows indexers of 32 or 64 heads of 128; the model's has {} of {}",
                     s.index_heads, s.index_dim);
}

std::string why_not_reference(const AttentionOptions&, const AttentionShape&) {
  return "";
}

struct Row {
  std::string_view name;
  Why why_not;  // "": the row can run this model on this device. Null: the row never runs
  // the kernels that serve this row; for a row that never runs, the reason
  std::string_view kernels;
  bool reference_only = false;  // on a GPU this row uses only the reference kernels
};

constexpr std::string_view kNoLibrary = "its kernels are not part of this program";

// "auto" tries the rows in this order. Names of other engines' back ends map to our kernels of the
// same kind, if these support the model's shape.
constexpr std::array kRows = {
    Row{"native", &why_not_native, "Sluice's own kernels, chosen by the shape of each call"},
    Row{"reference", &why_not_reference,
        "for every model: the kernels of a CPU, or on a GPU plain ones with one order of "
        "summation",
        true},
    Row{"fa3", &why_not_fa3,
        "Sluice's own kernels (tiles on Hopper's warpgroup products) stand in for "
        "FlashAttention-3, which is not part of this program"},
    Row{"flashinfer", &why_not_flashinfer,
        "Sluice's own kernels (keys split over blocks, tiles for prefill) stand in for FlashInfer, "
        "which is not part of this program"},
    Row{"flashinfer_mla", &why_not_flashinfer_mla,
        "Sluice's own kernels (latent attention on Hopper) stand in for FlashInfer's MLA, which is "
        "not part of this program"},
    Row{"dsa", &why_not_dsa,
        "Sluice's own kernels (indexer, exact top-k, sparse latent attention)"},
    Row{"nsa", &why_not_dsa,
        "Sluice's own kernels (indexer, exact top-k, sparse latent attention); an older name of "
        "dsa"},
    Row{"triton", &why_not_reference,
        "Sluice's own portable kernels (those of 'reference') stand in for Triton's, since nothing "
        "is compiled at run time",
        true},
    Row{"flex_attention", &why_not_reference,
        "Sluice's own portable kernels (those of 'reference') stand in for FlexAttention, since "
        "nothing is compiled at run time",
        true},
    Row{"torch_native", &why_not_reference,
        "Sluice's own portable kernels (those of 'reference') stand in for PyTorch's, which is not "
        "part of this program",
        true},
    Row{"hybrid", nullptr,
        "name its halves with --prefill-attention-backend and --decode-attention-backend"},
    Row{"flashmla", nullptr, kNoLibrary},
    Row{"fa4", nullptr, kNoLibrary},
    Row{"cutlass_mla", nullptr, kNoLibrary},
    Row{"trtllm_mla", nullptr, kNoLibrary},
    Row{"trtllm_mha", nullptr, kNoLibrary},
    Row{"aiter", nullptr, "it needs an AMD GPU, which Sluice does not support"},
    Row{"ascend", nullptr, "it needs an Ascend NPU, which Sluice does not support"},
};

std::string why_not(const Row& row, const AttentionOptions& options, const AttentionShape& shape) {
  return row.why_not == nullptr ? std::string(row.kernels) : row.why_not(options, shape);
}

const Row& first_that_can(const AttentionOptions& options, const AttentionShape& shape) {
  for (const Row& row : kRows)
    if (why_not(row, options, shape).empty()) return row;
  fail(ErrorKind::kBug, "no attention back end can do this model");
}

const Row& row_named(const std::string& name, const AttentionOptions& options,
                     const AttentionShape& shape) {
  if (name == "auto") return first_that_can(options, shape);
  const Row* found = nullptr;
  std::vector<std::string_view> able{"auto"};
  for (const Row& row : kRows) {
    if (row.name == name) found = &row;
    if (why_not(row, options, shape).empty()) able.push_back(row.name);
  }
  require(found != nullptr, "unknown attention back end '{}'; known are auto, {}", name,
          fmt::join(attention_backend_names(), ", "));
  const std::string why = why_not(*found, options, shape);
  require(why.empty(),
          "attention back end '{}' cannot serve this model here: {}; those that can are {}", name,
          why, fmt::join(able, ", "));
  return *found;
}

// "not fa3, dsa: it needs ...; not triton: ..."
std::string reasons_against_others(const Row& taken, const AttentionOptions& options,
                                   const AttentionShape& shape) {
  std::vector<std::pair<std::string, std::vector<std::string_view>>> groups;
  for (const Row& row : kRows) {
    if (&row == &taken) continue;
    std::string why = why_not(row, options, shape);
    if (why.empty())
      why = fmt::format("'{}' comes first in the table and can do all that they do", taken.name);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == why; });
    if (group == groups.end())
      group = groups.emplace(groups.end(), std::move(why), std::vector<std::string_view>{});
    group->second.push_back(row.name);
  }
  std::string text;
  for (const auto& [why, names] : groups)
    text += fmt::format("{}not {}: {}", text.empty() ? "" : "; ", fmt::join(names, ", "), why);
  return text;
}

struct Rows {
  const Row& prefill;
  const Row& decode;
};
Rows pick_rows(const AttentionOptions& options, const AttentionShape& shape) {
  return {
      row_named(options.prefill_name.empty() ? options.name : options.prefill_name, options, shape),
      row_named(options.decode_name.empty() ? options.name : options.decode_name, options, shape)};
}

std::unique_ptr<AttentionBackend> make(const Row& row, const AttentionOptions& options,
                                       const AttentionShape& shape, const KVPool& pool) {
  return make_ops_backend(row.name, row.reference_only, options, shape, pool);
}

}  // namespace

AttentionPick pick_attention_backend(const AttentionOptions& options, const AttentionShape& shape) {
  const Rows rows = pick_rows(options, shape);
  AttentionPick pick{rows.prefill.name, rows.decode.name, {}, {}};
  if (&rows.prefill == &rows.decode)
    pick.reason = fmt::format("attention {}: {}", rows.prefill.name, rows.prefill.kernels);
  else
    pick.reason = fmt::format("attention: prefill {}: {}; decode {}: {}", rows.prefill.name,
                              rows.prefill.kernels, rows.decode.name, rows.decode.kernels);
  pick.kernels = pick.reason;
  const bool chosen =
      options.name == "auto" && (options.prefill_name.empty() || options.decode_name.empty());
  if (chosen) {
    const Row& taken = options.prefill_name.empty() ? rows.prefill : rows.decode;
    pick.reason += " (auto: " + reasons_against_others(taken, options, shape) + ")";
  }
  return pick;
}

std::unique_ptr<AttentionBackend> make_attention_backend(const AttentionOptions& options,
                                                         const AttentionShape& shape,
                                                         const KVPool& pool) {
  const Rows rows = pick_rows(options, shape);
  if (&rows.prefill == &rows.decode) return make(rows.prefill, options, shape, pool);
  return std::make_unique<HybridAttnBackend>(make(rows.prefill, options, shape, pool),
                                             make(rows.decode, options, shape, pool));
}

std::vector<std::string_view> attention_backend_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

std::vector<std::string_view> served_attention_backend_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows)
    if (row.why_not != nullptr) names.push_back(row.name);
  return names;
}

}  // namespace sluice
