// Attention over int8 planes. Dot products run over the bytes as floats. The scale of a key
// multiplies its score, and the scale of a value its probability (op_params.h). Included by
// isa_*.cpp after attention_impl.h.
//
//   score  = (sum of q[i] * float(k[i])) * s_k
//   out[j] = sum over keys, ascending, of (p * s_v) * float(v[j])
#pragma once

namespace sluice::cpu {

template <class V>
struct Int8Products : PlainProducts<V, std::int8_t> {
  using Plain = PlainProducts<V, std::int8_t>;

  // scores[r, i] *= the scale behind the `dim` bytes of row[i], for keys [u0, u1).
  void apply_scales(const std::int8_t* const* row, std::int64_t dim, std::int64_t u0,
                    std::int64_t u1, float* scores) const {
    float scale[kChunk];
    for (std::int64_t i = u0; i < u1; ++i) std::memcpy(scale + i, row[i] + dim, sizeof(float));
    for (int r = 0; r < this->t.rows; ++r)
      for (std::int64_t i = u0; i < u1; ++i) scores[r * kChunk + i] *= scale[i];
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) const {
    Plain::score(u0, u1, scores);
    apply_scales(this->k, this->t.d, u0, u1, scores);
  }
  void accumulate(std::int64_t u0, std::int64_t u1, float* scores, const std::int64_t* lo,
                  const std::int64_t* hi, float* part, std::int64_t width) const {
    apply_scales(this->v, this->t.dv, u0, u1, scores);
    Plain::accumulate(u0, u1, scores, lo, hi, part, width);
  }
};

template <class V>
void attend_tile_int8(const AttendTile& t) {
  Int8Products<V> products{{.t = t, .k = {}, .v = {}}};
  attend_with<V>(t, products);
}

}  // namespace sluice::cpu
