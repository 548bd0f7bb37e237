// Causal convolutions, recurrent scans and gates over a vector type V. Included by
// recurrent_avx*.cpp after norm_impl.h.
//
// Every element processes its tokens in order, with one order of summation. So its bits do not
// depend on how a prompt is cut into steps, on other sequences, or on the vector width.
#pragma once

namespace sluice::cpu {

template <class V>
inline typename V::F vec_sigmoid(typename V::F x) {
  const auto one = V::set1(1.0f);
  return V::div(one, V::add(one, vec_exp<V>(V::sub(V::zero(), x))));
}

// log(1 + e^x) = max(x, 0) + log1p(e^-|x|). log1p(y) = 2 artanh(y / (2 + y)), as a series up to
// s^15. Since s <= 1/3, the omitted terms are below 2e-9 of the result.
template <class V>
inline typename V::F vec_softplus(typename V::F x) {
  const auto y = vec_exp<V>(V::min(x, V::sub(V::zero(), x)));
  const auto s = V::div(y, V::add(V::set1(2.0f), y));
  const auto z = V::mul(s, s);
  auto p = V::set1(1.0f / 15.0f);
  for (int n = 13; n > 0; n -= 2) p = V::fma(p, z, V::set1(1.0f / static_cast<float>(n)));
  return V::fma(V::add(s, s), p, V::max(V::zero(), x));
}

template <class V, int kTaps>
void conv_channels(const ConvArgs& a, std::int64_t first, std::int64_t count) {
  for_lanes<V>(count, [&](std::int64_t i, auto lanes) {
    const std::int64_t c = first + i;
    // Weights and the last kTaps - 1 inputs stay in registers over all tokens.
    typename V::F weight[kTaps], past[kTaps - 1];
    for (int j = 0; j < kTaps; ++j) weight[j] = lanes.load(a.weight + j * a.channels + c);
    for (int j = 0; j < kTaps - 1; ++j)
      past[j] = a.fresh ? V::zero() : lanes.load(a.state + j * a.channels + c);
    const auto bias = a.bias == nullptr ? V::zero() : lanes.load(a.bias + c);
    for (std::int64_t t = 0; t < a.tokens; ++t) {
      const auto x = lanes.load(a.x + t * a.x_stride + c);
      auto y = bias;
      for (int j = 0; j < kTaps - 1; ++j) y = V::fma(weight[j], past[j], y);
      y = V::fma(weight[kTaps - 1], x, y);
      for (int j = 0; j < kTaps - 2; ++j) past[j] = past[j + 1];
      past[kTaps - 2] = x;
      lanes.store(a.out + t * a.out_stride + c, a.silu ? V::mul(y, vec_sigmoid<V>(y)) : y);
    }
    for (int j = 0; j < kTaps - 1; ++j) lanes.store(a.state + j * a.channels + c, past[j]);
  });
}

// Four accumulators over the keys, each over every fourth key, reduced as (0 + 1) + (2 + 3). This
// order is the same for every vector width.
template <class V>
struct KeySums {
  static constexpr int kVectors = static_cast<int>(ops::kStateColumns) / V::kLanes;
  typename V::F sum[4][kVectors];

  KeySums() {
    for (auto& row : sum)
      for (auto& lane : row) lane = V::zero();
  }
  typename V::F total(int i) const {
    return V::add(V::add(sum[0][i], sum[1][i]), V::add(sum[2][i], sum[3][i]));
  }
};

// Calls body(d, accumulator) for each key d.
template <class Body>
inline void for_keys(std::int64_t dk, const Body& body) {
  std::int64_t d = 0;
  for (; d + 4 <= dk; d += 4) {
    body(d, 0);
    body(d + 1, 1);
    body(d + 2, 2);
    body(d + 3, 3);
  }
  for (int j = 0; d < dk; ++d, ++j) body(d, j);
}

template <class V>
void scan_columns(const ScanArgs& a) {
  constexpr int kVectors = KeySums<V>::kVectors;
  constexpr std::int64_t kWidth = ops::kStateColumns;
  const auto lanes_of = [&](int i) {
    const int left = a.columns - i * V::kLanes;
    return left < 0 ? 0 : left > V::kLanes ? V::kLanes : left;
  };
  if (a.fresh) std::memset(a.state, 0, static_cast<std::size_t>(a.dk * kWidth) * sizeof(float));
  float decay[ops::kMaxStateKeys];
  // Per token:
  // 1. u = v, or with the delta rule u = v - (decayed state)^T k; then u *= beta.
  // 2. state = decay * state + k u^T; out = state^T q + skip * v. One pass over the state.
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const float* q = a.q + t * a.q_stride;
    const float* k = a.k + t * a.k_stride;
    const float* g = a.decay + t * a.decay_stride;
    for (std::int64_t d = 0; d < a.dk; ++d) decay[d] = a.decay_by_key ? g[d] : g[0];

    typename V::F v[kVectors], u[kVectors];
    for (int i = 0; i < kVectors; ++i)
      v[i] = V::load_n(a.v + t * a.v_stride + i * V::kLanes, lanes_of(i));
    // 1.
    if (a.delta) {
      KeySums<V> seen;
      for_keys(a.dk, [&](std::int64_t d, int j) __attribute__((always_inline)) {
        const auto factor = V::set1(decay[d] * k[d]);
        for (int i = 0; i < kVectors; ++i)
          seen.sum[j][i] =
              V::fma(V::load(a.state + d * kWidth + i * V::kLanes), factor, seen.sum[j][i]);
      });
      for (int i = 0; i < kVectors; ++i) u[i] = V::sub(v[i], seen.total(i));
    } else {
      for (int i = 0; i < kVectors; ++i) u[i] = v[i];
    }
    const auto beta = V::set1(a.beta[t * a.beta_stride]);
    for (int i = 0; i < kVectors; ++i) u[i] = V::mul(u[i], beta);

    // 2.
    KeySums<V> read;
    for_keys(a.dk, [&](std::int64_t d, int j) __attribute__((always_inline)) {
      const auto kept = V::set1(decay[d]), key = V::set1(k[d]), query = V::set1(q[d]);
      for (int i = 0; i < kVectors; ++i) {
        float* place = a.state + d * kWidth + i * V::kLanes;
        const auto state = V::fma(key, u[i], V::mul(kept, V::load(place)));
        V::store(place, state);
        read.sum[j][i] = V::fma(query, state, read.sum[j][i]);
      }
    });
    for (int i = 0; i < kVectors; ++i)
      V::store_n(a.out + t * a.out_stride + i * V::kLanes,
                 V::fma(V::set1(a.skip), v[i], read.total(i)), lanes_of(i));
  }
}

template <class V>
void gates_row(const float* x, const float* bias, const float* rate, float min_step, float max_step,
               float* step, float* decay, std::int64_t n) {
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    auto dt = vec_softplus<V>(V::add(lanes.load(x + i), lanes.load(bias + i)));
    dt = V::max(V::set1(min_step), dt);
    if (max_step > 0) dt = V::min(V::set1(max_step), dt);
    if (step != nullptr) lanes.store(step + i, dt);
    lanes.store(decay + i, vec_exp<V>(V::mul(lanes.load(rate + i), dt)));
  });
}

template <class V>
void sigmoid_row(const float* x, float* out, std::int64_t n) {
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i, vec_sigmoid<V>(lanes.load(x + i)));
  });
}

template <class V>
void gated_mul_row(ops::Gate fn, const float* x, const float* gate, float* out, std::int64_t n) {
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    const auto g = lanes.load(gate + i);
    auto factor = g;
    if (fn != ops::Gate::kLinear) factor = vec_sigmoid<V>(g);
    if (fn == ops::Gate::kSilu) factor = V::mul(g, factor);
    lanes.store(out + i, V::mul(lanes.load(x + i), factor));
  });
}

template <class V>
constexpr RecurrentKernels make_recurrent_kernels() {
  return {
      .conv = {conv_channels<V, 2>, conv_channels<V, 3>, conv_channels<V, 4>, conv_channels<V, 5>,
               conv_channels<V, 6>, conv_channels<V, 7>, conv_channels<V, 8>},
      .scan = scan_columns<V>,
      .gates = gates_row<V>,
      .sigmoid = sigmoid_row<V>,
      .gated_mul = gated_mul_row<V>};
}

}  // namespace sluice::cpu
