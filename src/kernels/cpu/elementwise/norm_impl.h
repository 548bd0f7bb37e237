// exp, tanh, norms and activations over a vector type V. Included by isa_*.cpp after isa_prelude.h.
#pragma once

namespace sluice::cpu {

// e^x within 2 ulp; 0 below the denormals, inf above the range, NaN for NaN. x = n ln 2 + r with
// |r| <= ln 2 / 2. e^r is its Taylor polynomial of degree 7, with a remainder below 6e-9.
template <class V>
inline typename V::F vec_exp(typename V::F x) {
  x = V::max(V::set1(-110.0f), V::min(V::set1(89.0f), x));
  const auto n = V::round(V::mul(x, V::set1(1.44269504f)));
  // ln 2 in two parts: the first has few bits, so n times it is exact.
  auto r = V::fnma(n, V::set1(0.693359375f), x);
  r = V::fnma(n, V::set1(-2.12194440e-4f), r);
  auto y = V::set1(1.0f / 5040.0f);
  y = V::fma(y, r, V::set1(1.0f / 720.0f));
  y = V::fma(y, r, V::set1(1.0f / 120.0f));
  y = V::fma(y, r, V::set1(1.0f / 24.0f));
  y = V::fma(y, r, V::set1(1.0f / 6.0f));
  y = V::fma(y, r, V::set1(0.5f));
  y = V::fma(y, r, V::set1(1.0f));
  y = V::fma(y, r, V::set1(1.0f));
  return V::scale_by_power(y, n);
}

// Access to whole vectors (WholeLanes), and to the rest of a row (SomeLanes), where missing lanes
// load as zero. for_lanes() calls body(offset, lanes) with one of them.
template <class V>
struct WholeLanes {
  template <class T>
  typename V::F load(const T* p) const {
    return V::load(p);
  }
  template <class T>
  void store(T* p, typename V::F x) const {
    V::store(p, x);
  }
};
template <class V>
struct SomeLanes {
  int n;
  template <class T>
  typename V::F load(const T* p) const {
    return V::load_n(p, n);
  }
  template <class T>
  void store(T* p, typename V::F x) const {
    V::store_n(p, x, n);
  }
  // Zeroes the lanes that do not exist.
  typename V::F clear(typename V::F x) const {
    alignas(64) float part[V::kLanes];
    V::store(part, x);
    return V::load_n(part, n);
  }
};

template <class V, class Body>
inline void for_lanes(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) body(i, WholeLanes<V>{});
  if (i < n) body(i, SomeLanes<V>{static_cast<int>(n - i)});
}

template <class V, class Lanes>
inline typename V::F load_weight(const Lanes& lanes, const WeightVector& w, std::int64_t i) {
  if (w.dtype == DType::kBF16) return lanes.load(static_cast<const BF16*>(w.data) + i);
  if (w.dtype == DType::kF16) return lanes.load(static_cast<const F16*>(w.data) + i);
  return lanes.load(static_cast<const float*>(w.data) + i);
}

// Prefetches the weights of a norm. They lie elsewhere in memory and are needed only after all of x
// has been read.
inline void fetch_weights(const WeightVector& w, std::int64_t n) {
  constexpr std::int64_t kMax = 32 << 10;
  const std::int64_t bytes = std::min(kMax, n * (w.dtype == DType::kF32 ? 4 : 2));
  for (std::int64_t i = 0; i < bytes; i += 64)
    _mm_prefetch(static_cast<const char*>(w.data) + i, _MM_HINT_T0);
}

template <class V>
void rms_norm_row(const NormArgs& a) {
  fetch_weights(a.weight, a.n);
  auto squares = V::zero();
  const float* x = a.x;
  // Sum of squares, and residual += x in the same pass.
  for_lanes<V>(a.n, [&](std::int64_t i, auto lanes) {
    auto value = lanes.load(a.x + i);
    if (a.residual != nullptr) {
      value = V::add(lanes.load(a.residual + i), value);
      lanes.store(a.residual + i, value);
    }
    squares = V::fma(value, value, squares);
  });
  if (a.residual != nullptr) x = a.residual;
  const float mean = V::sum(squares) / static_cast<float>(a.n);
  const auto factor = V::set1(1.0f / std::sqrt(mean + a.eps));
  const auto write = [&](auto* out) {
    for_lanes<V>(a.n, [&](std::int64_t i, auto lanes) {
      lanes.store(out + i,
                  V::mul(V::mul(lanes.load(x + i), factor), load_weight<V>(lanes, a.weight, i)));
    });
  };
  if (a.out_dtype == DType::kBF16)
    write(static_cast<BF16*>(a.out));
  else
    write(static_cast<float*>(a.out));
}

// Two passes (mean, then variance): E[x^2] - mean^2 would lose precision.
template <class V>
void layer_norm_row(const NormArgs& a) {
  auto sum = V::zero();
  for_lanes<V>(a.n, [&](std::int64_t i, auto lanes) { sum = V::add(sum, lanes.load(a.x + i)); });
  const auto mean = V::set1(V::sum(sum) / static_cast<float>(a.n));
  auto squares = V::zero();
  for_lanes<V>(a.n, [&](std::int64_t i, auto lanes) {
    auto off = V::sub(lanes.load(a.x + i), mean);
    // Missing lanes loaded as zero, so x - mean is not zero there.
    if constexpr (requires { lanes.clear(off); }) off = lanes.clear(off);
    squares = V::fma(off, off, squares);
  });
  const float variance = V::sum(squares) / static_cast<float>(a.n);
  const auto factor = V::set1(1.0f / std::sqrt(variance + a.eps));
  for_lanes<V>(a.n, [&](std::int64_t i, auto lanes) {
    auto y = V::mul(V::mul(V::sub(lanes.load(a.x + i), mean), factor),
                    load_weight<V>(lanes, a.weight, i));
    if (a.bias.data != nullptr) y = V::add(y, load_weight<V>(lanes, a.bias, i));
    lanes.store(static_cast<float*>(a.out) + i, y);
  });
}

// tanh(x) = 1 - 2 / (1 + e^2x), with an absolute error within 4 eps.
template <class V>
inline typename V::F vec_tanh(typename V::F x) {
  const auto one = V::set1(1.0f);
  return V::sub(one, V::div(V::set1(2.0f), V::add(one, vec_exp<V>(V::add(x, x)))));
}

// erf(x) = x P(x^2) / Q(x^2) for |x| <= 3.92, beyond which it is 1 in float32. P and Q were fitted
// for the least relative error, 2e-8; with the rounding of their sums it is below 6 eps.
template <class V>
inline typename V::F vec_erf(typename V::F x) {
  x = V::max(V::set1(-3.92f), V::min(V::set1(3.92f), x));
  const auto t = V::mul(x, x);
  auto p = V::set1(2.05008041120891e-06f);
  for (const float c : {0.0002848831645678729f, 0.003765643807128072f, 0.05274880677461624f,
                        0.19040711224079132f, 1.1283791065216064f})
    p = V::fma(p, t, V::set1(c));
  auto q = V::set1(3.809166810242459e-05f);
  for (const float c : {0.0011625416809692979f, 0.014969270676374435f, 0.11410937458276749f,
                        0.5020766258239746f, 1.0f})
    q = V::fma(q, t, V::set1(c));
  const auto one = V::set1(1.0f);
  return V::max(V::sub(V::zero(), one), V::min(one, V::div(V::mul(x, p), q)));
}

// ReLU, squared ReLU, and GELU with erf.
template <class V>
inline typename V::F activated_plainly(Activation activation, typename V::F x) {
  const auto positive = V::max(V::zero(), x);
  if (activation == Activation::kRelu) return positive;
  if (activation == Activation::kRelu2) return V::mul(positive, positive);
  const auto erf = vec_erf<V>(V::mul(x, V::set1(0.70710678f)));
  return V::mul(V::mul(V::set1(0.5f), x), V::add(V::set1(1.0f), erf));
}

// SiLU and tanh-GELU are both x sigmoid(u): 0.5 x (1 + tanh(v)) = x sigmoid(2 v).
template <class V>
inline typename V::F activated(Activation activation, typename V::F x) {
  if (activation > Activation::kGeluTanh) [[unlikely]]
    return activated_plainly<V>(activation, x);
  auto u = x;
  if (activation == Activation::kGeluTanh)
    u = V::mul(V::fma(V::mul(V::mul(x, x), x), V::set1(0.044715f), x), V::set1(1.5957691216f));
  return V::div(x, V::add(V::set1(1.0f), vec_exp<V>(V::sub(V::zero(), u))));
}

template <class V, class Out>
void act_and_mul_row(Activation activation, const float* gate, const float* up, Out* out,
                     std::int64_t n) {
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i,
                V::mul(activated<V>(activation, lanes.load(gate + i)), lanes.load(up + i)));
  });
}

template <class V, class Out>
void activate_row(Activation activation, const float* x, Out* out, std::int64_t n) {
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i, activated<V>(activation, lanes.load(x + i)));
  });
}

template <class V>
void softcap_row(const float* x, float cap, float* out, std::int64_t n) {
  const auto inverse = V::set1(1.0f / cap);
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i, V::mul(vec_tanh<V>(V::mul(lanes.load(x + i), inverse)), V::set1(cap)));
  });
}

template <class V>
void sigmoid_mul_row(const float* x, float gate, float* out, std::int64_t n) {
  const auto one = V::set1(1.0f);
  const auto factor = V::div(one, V::add(one, vec_exp<V>(V::set1(-gate))));
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    lanes.store(out + i, V::mul(lanes.load(x + i), factor));
  });
}

}  // namespace sluice::cpu
