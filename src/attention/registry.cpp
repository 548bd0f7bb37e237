#include "attention/registry.h"

#include <fmt/ranges.h>

#include <array>

#include "attention/hybrid.h"
#include "attention/reference.h"
#include "base/build.h"
#include "base/error.h"

namespace sluice {
namespace {

using Make = std::unique_ptr<AttentionBackend> (*)(const AttentionOptions&, const AttentionShape&,
                                                   const KVPool&);

struct Row {
  std::string_view name;
  Make make;                 // null: known, but not in this build
  std::string_view refusal;  // why
};

constexpr std::string_view kNeedsCuda =
    kHasCuda ? "its kernels are not part of this version; use 'reference', which serves every model"
             : "it needs an NVIDIA GPU, and this build runs on the CPU";

constexpr std::array kRows = {
    Row{"reference", &make_reference_backend, {}},
    Row{"flashinfer", nullptr, kNeedsCuda},
    Row{"flashmla", nullptr, kNeedsCuda},
    Row{"fa3", nullptr, kNeedsCuda},
    Row{"fa4", nullptr, kNeedsCuda},
    Row{"cutlass_mla", nullptr, kNeedsCuda},
    Row{"trtllm_mla", nullptr, kNeedsCuda},
    Row{"trtllm_mha", nullptr, kNeedsCuda},
    Row{"nsa", nullptr, kNeedsCuda},
    Row{"dsa", nullptr, kNeedsCuda},
    Row{"triton", nullptr, "Sluice compiles nothing at run time; use 'reference'"},
    Row{"torch_native", nullptr, "Sluice has no PyTorch in it; use 'reference'"},
    Row{"aiter", nullptr, "it needs an AMD GPU, which Sluice does not support"},
    Row{"ascend", nullptr, "it needs an Ascend NPU, which Sluice does not support"},
};

const Row& find_row(std::string_view name) {
  if (name == "auto") return kRows.front();
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    require(row.make != nullptr, "attention back end '{}' is not available: {}", name, row.refusal);
    return row;
  }
  fail(ErrorKind::kBadInput, "unknown attention back end '{}'; known are: auto, {}", name,
       fmt::join(attention_backend_names(), ", "));
}

}  // namespace

std::unique_ptr<AttentionBackend> make_attention_backend(const AttentionOptions& options,
                                                         const AttentionShape& shape, const KVPool& pool) {
  const Row& prefill = find_row(options.prefill_name.empty() ? options.name : options.prefill_name);
  const Row& decode = find_row(options.decode_name.empty() ? options.name : options.decode_name);
  if (&prefill == &decode) return prefill.make(options, shape, pool);
  return std::make_unique<HybridAttnBackend>(prefill.make(options, shape, pool),
                                             decode.make(options, shape, pool));
}

std::vector<std::string_view> attention_backend_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

}  // namespace sluice
