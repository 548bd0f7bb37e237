// gpu_kernels: the families of sparse attention.
#include "gpu/kernels.h"
#include "kernels/types/latent_rows.h"

namespace sluice {
namespace {

// Sparse attention of DeepSeek-V3.2: an indexer of 64 heads of 128, the best 2,048 keys, latents of
// 512 + 64 for 128 heads.
struct Sparse {
  static constexpr std::int64_t kIndexHeads = 64, kIndexDim = 128, kTopk = 2048, kHeads = 128,
                                kLatent = 512, kRope = 64;

  // `tokens` rows at the ends of `seqs` sequences of `length` tokens each. Index keys, and latents,
  // are e4m3 with scales or bfloat16.
  Sparse(Bench& b, std::int64_t num_seqs, std::int64_t num_tokens, std::int64_t num_keys,
         bool in_bytes, bool latents_in_bytes = false)
      : bench(b),
        seqs(num_seqs),
        tokens(num_tokens),
        length(num_keys),
        bytes(in_bytes),
        codes(latents_in_bytes) {
    const std::int64_t pages = length / 64, each = tokens / seqs;
    rows = {bench.integers({seqs, pages},
                           [&](std::int64_t i) {
                             return static_cast<std::int32_t>(i * 7919 % (seqs * pages));
                           }),
            bench.integers({tokens},
                           [&](std::int64_t t) { return static_cast<std::int32_t>(t / each); }),
            bench.integers({tokens}, [&](std::int64_t t) {
              return static_cast<std::int32_t>(length - each + t % each);
            })};
    index_q = bench.take(DType::kF32, {tokens, kIndexHeads, kIndexDim});
    weights = bench.take(DType::kF32, {tokens, kIndexHeads});
    sets = sets_for(static_cast<std::int64_t>(key_bytes()));
    if (bytes) {
      keys = bench.take(DType::kU8, {sets, seqs * length, kIndexDim + ops::kKeyScaleBytes}, false);
      const Tensor slots = bench.take(DType::kI64, {length}, false),
                   some = bench.take(DType::kF32, {length, kIndexDim});
      for (std::int64_t first = 0; first < sets * seqs * length; first += length) {
        HostImage image(slots);
        for (std::int64_t i = 0; i < length; ++i) image.tensor().ptr<std::int64_t>()[i] = first + i;
        image.put();
        ops::kv_write(
            bench.machine.ctx, some, slots,
            plane_of(keys.reshape({sets * seqs * length, kIndexDim + ops::kKeyScaleBytes})));
        bench.machine.stream().synchronize();
      }
    } else {
      keys = bench.take(DType::kBF16, {sets, seqs * length, kIndexDim});
    }
    take_latents();
    const ops::IndexWorkspaceShape shape =
        ops::index_topk_workspace(bench.machine.ctx, tokens, length);
    workspace = bench.take(DType::kF32, {shape.rows, shape.max_len}, false);
    std::mt19937 random(5);
    chosen = bench.integers({tokens, kTopk}, [&](std::int64_t i) {
      const std::int64_t step = length / kTopk;  // one of every `step` keys
      return static_cast<std::int32_t>(
          i % kTopk * step + static_cast<std::int64_t>(random() % static_cast<unsigned>(step)));
    });
    q = bench.take(DType::kF32, {tokens, kHeads, kLatent});
    q_rope = bench.take(DType::kF32, {tokens, kHeads, kRope});
    out = bench.take(DType::kF32, {tokens, kHeads, kLatent}, false);
  }
  void take_latents() {
    if (!codes) {
      latents = bench.take(DType::kBF16, {sets, seqs * length, kLatent + kRope});
      return;
    }
    const std::int64_t row = latent_row_bytes();
    latents = bench.take(DType::kF8E4M3, {sets, seqs * length, row}, false);
    const Tensor slots = bench.take(DType::kI64, {length}, false),
                 some = bench.take(DType::kF32, {length, kLatent + kRope});
    for (std::int64_t first = 0; first < sets * seqs * length; first += length) {
      HostImage image(slots);
      for (std::int64_t i = 0; i < length; ++i) image.tensor().ptr<std::int64_t>()[i] = first + i;
      image.put();
      ops::write_latents(bench.machine.ctx, some.slice(1, 0, kLatent),
                         some.slice(1, kLatent, kRope), slots,
                         latents.reshape({sets * seqs * length, row}));
      bench.machine.stream().synchronize();
    }
  }
  std::int64_t latent_row_bytes() const {
    return codes ? ops::LatentRow{kLatent, kRope}.bytes() : 2 * (kLatent + kRope);
  }
  ops::KvPlane plane_of(const Tensor& rows_of_keys) const {
    return bytes ? ops::KvPlane(rows_of_keys, ops::PlaneForm::kScaledPages, 1)
                 : ops::KvPlane(rows_of_keys);
  }
  std::string label() const {
    return fmt::format("{} rows of {} sequences, {} {} keys", tokens, seqs, length,
                       bytes ? "e4m3" : "bfloat16");
  }
  std::string latent_label() const {
    return fmt::format("{} rows of {} sequences, {} {} latents", tokens, seqs, length,
                       codes ? "e4m3" : "bfloat16");
  }
  double key_bytes() const {
    return (bytes ? kIndexDim + 4.0 : 2.0 * kIndexDim) * static_cast<double>(seqs * length);
  }
  double score_operations() const {
    return 2.0 * kIndexHeads * kIndexDim * static_cast<double>(tokens * length);
  }
  double latent_bytes() const {
    return static_cast<double>(latent_row_bytes() * std::min(tokens * kTopk, seqs * length));
  }
  double all_latent_bytes() const {
    return static_cast<double>(latent_row_bytes() * seqs * length);
  }
  double attend_operations() const { return operations_of(kTopk); }
  double operations_of(std::int64_t num_keys) const {
    return 2.0 * kHeads * (2 * kLatent + kRope) * static_cast<double>(tokens * num_keys);
  }
  void choose(int i) {
    ops::index_topk(bench.machine.ctx, index_q, weights, plane_of(keys.at(i)), rows, workspace,
                    chosen);
  }
  void attend(int i) {
    ops::mla_sparse_attention(bench.machine.ctx, q, q_rope, latents.at(i), rows, chosen, 0.05f,
                              out);
  }
  void attend_all(int i) {
    ops::mla_attention(bench.machine.ctx, q, q_rope, latents.at(i), rows, 0.05f, out);
  }

  Bench& bench;
  std::int64_t seqs, tokens, length;
  bool bytes = false, codes = false;
  int sets = 1;
  ops::PagedRows rows;
  Tensor index_q, weights, keys, latents, workspace, chosen, q, q_rope, out;
};

struct SparseShape {
  std::int64_t seqs, tokens, length;
};
constexpr SparseShape kSparseShapes[] = {{1, 1, 32768},    {32, 32, 32768},  {1, 1, 131072},
                                         {32, 32, 131072}, {1, 2048, 32768}, {1, 512, 131072}};

// With index keys of both types.
void for_each_sparse(Bench& bench, const std::function<void(Sparse&)>& run) {
  for (const auto& [seqs, tokens, length] : kSparseShapes)
    for (const bool bytes : {false, true}) {
      Sparse sparse(bench, seqs, tokens, length, bytes);
      run(sparse);
      bench.clear();
    }
}

}  // namespace

void index(Bench& bench) {
  for_each_sparse(bench, [&](Sparse& sparse) {
    bench.time("index_topk", sparse.label(), sparse.key_bytes(), sparse.score_operations(),
               sparse.sets, [&](int i) { sparse.choose(i); });
  });
}

void mla(Bench& bench) {
  for (const auto& [seqs, tokens, length] : kSparseShapes)
    for (const bool codes : {false, true}) {
      Sparse sparse(bench, seqs, tokens, length, false, codes);
      bench.time("mla_sparse_attention", sparse.latent_label(), sparse.latent_bytes(),
                 sparse.attend_operations(), sparse.sets, [&](int i) { sparse.attend(i); });
      // A prompt over all keys takes seconds.
      if (tokens == seqs)
        bench.time("mla_attention", sparse.latent_label(), sparse.all_latent_bytes(),
                   sparse.operations_of(length), sparse.sets, [&](int i) { sparse.attend_all(i); });
      bench.clear();
    }
}

// Both, as in a layer. The floor is the maximum of reading keys and computing scores, first for
// index keys, then for latents.
void dsa(Bench& bench) {
  for_each_sparse(bench, [&](Sparse& sparse) {
    const double floor =
        std::max(bench.reading(sparse.key_bytes()), bench.multiplying(sparse.score_operations())) +
        std::max(bench.reading(sparse.latent_bytes()),
                 bench.multiplying(sparse.attend_operations()));
    bench.time(
        "dsa", sparse.label(), sparse.key_bytes() + sparse.latent_bytes(),
        sparse.score_operations() + sparse.attend_operations(), sparse.sets,
        [&](int i) { sparse.choose(i), sparse.attend(i); }, floor);
  });
}

}  // namespace sluice
