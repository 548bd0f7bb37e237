#include "kernels/cpu/moe/place_experts.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "kernels/cpu/common/rows.h"

namespace sluice::cpu {

void place_experts(Context& ctx, const Tensor& places, const Tensor& ids) {
  const std::int64_t top_k = ids.dim(1), experts = places.dim(0);
  const auto* const place = places.ptr<std::int32_t>();
  parallel(ctx, ids.dim(0), top_k, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      auto* const id = row<std::int32_t>(ids, t);
      for (std::int64_t j = 0; j < top_k; ++j) {
        check(id[j] >= 0 && id[j] < experts, "expert {} of {}", id[j], experts);
        id[j] = place[id[j]];
      }
    }
  });
}

// One thread: an increment a pair.
void count_choices(const Tensor& ids, const Tensor& choices) {
  auto* const count = choices.ptr<std::int64_t>();
  for (std::int64_t t = 0; t < ids.dim(0); ++t)
    for (std::int64_t j = 0; j < ids.dim(1); ++j) {
      const std::int32_t id = row<std::int32_t>(ids, t)[j];
      check(id >= 0 && id < choices.dim(0), "expert {} of {}", id, choices.dim(0));
      ++count[id];
    }
}

// One thread: a token costs some hundred nanoseconds, and the counts are of all tokens.
void place_replicas(const ReplicaPlaces& places, const Tensor& weights, const Tensor& ids) {
  const std::int64_t top_k = ids.dim(1), experts = places.replicas.dim(0);
  const auto bytes = static_cast<std::size_t>(top_k) * sizeof(float);
  auto* const choices = places.choices.ptr<std::int64_t>();
  auto* const group_choices = places.group_choices.ptr<std::int64_t>();
  for (std::int64_t t = 0; t < ids.dim(0); ++t) {
    auto* const id = row<std::int32_t>(ids, t);
    const std::uint64_t token = hash_bytes(id, bytes, hash_bytes(row<float>(weights, t), bytes));
    for (std::int64_t j = 0; j < top_k; ++j) {
      check(id[j] >= 0 && id[j] < experts, "expert {} of {}", id[j], experts);
      ++choices[id[j]];
      const auto* const of_expert = row<std::int32_t>(places.replicas, id[j]);
      const auto count = static_cast<std::uint64_t>(of_expert[0]);
      const std::uint64_t taken =
          count == 1 ? 0 : hash_combine(token, static_cast<std::uint64_t>(id[j])) % count;
      const std::int64_t place = of_expert[1 + taken];
      ++group_choices[place / places.group_places];
      const std::int64_t own = place - places.first_place;
      id[j] = own >= 0 && own < places.group_places ? static_cast<std::int32_t>(own) : -1;
    }
  }
}

void add_pairs(Context& ctx, const Tensor& pairs, const Tensor& out) {
  const std::int64_t tokens = out.dim(0), columns = out.dim(1);
  if (tokens == 0) return;
  const std::int64_t top_k = pairs.dim(0) / tokens;
  parallel(ctx, tokens, top_k * columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      auto* const to = row<float>(out, t);
      std::copy_n(row<float>(pairs, t * top_k), columns, to);
      for (std::int64_t j = 1; j < top_k; ++j) {
        const auto* const from = row<float>(pairs, t * top_k + j);
        for (std::int64_t i = 0; i < columns; ++i) to[i] += from[i];
      }
    }
  });
}

}  // namespace sluice::cpu
