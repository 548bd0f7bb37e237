// Attention over planes of e4m3 in float32. AttendTile::scale has the scale of the keys; that of
// the values multiplies the probabilities. Included by isa_*.cpp after attention_impl.h.
#pragma once

namespace sluice::cpu {

template <class V>
struct E4m3Products : PlainProducts<V, ops::E4M3> {
  using Plain = PlainProducts<V, ops::E4M3>;

  void accumulate(std::int64_t u0, std::int64_t u1, float* scores, const std::int64_t* lo,
                  const std::int64_t* hi, float* part, std::int64_t width) const {
    if (this->t.value_scale != 1)
      for (int r = 0; r < this->t.rows; ++r)
        for (std::int64_t i = u0; i < u1; ++i) scores[r * kChunk + i] *= this->t.value_scale;
    Plain::accumulate(u0, u1, scores, lo, hi, part, width);
  }
};

template <class V>
void attend_tile_e4m3(const AttendTile& t) {
  E4m3Products<V> products{{.t = t, .k = {}, .v = {}}};
  attend_with<V>(t, products);
}

}  // namespace sluice::cpu
