#include "runtime/expert_balancer.h"

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "experts/balance.h"

namespace sluice {
namespace {

constexpr std::int64_t kFirstSliceBytes = 64 << 10;
// A smaller slice would take as long: each waits for the slowest rank.
constexpr std::int64_t kMinSliceBytes = 16 << 10, kMaxSliceBytes = 64 << 20;
constexpr std::size_t kMedianSteps = 64;
constexpr std::int64_t kStepsOfSample = 32;
// A new map is used where the busiest group gets at most this part of its load.
constexpr double kWorthwhile = 0.98;

std::vector<std::int64_t> numbers(const Tensor& tensor) {
  const auto* const first = tensor.ptr<std::int64_t>();
  return {first, first + tensor.numel()};
}

std::vector<double> difference(const std::vector<std::int64_t>& now,
                               const std::vector<std::int64_t>& then) {
  std::vector<double> out(now.size());
  for (std::size_t i = 0; i < now.size(); ++i) out[i] = static_cast<double>(now[i] - then[i]);
  return out;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

ExpertBalancer::ExpertBalancer(const BalancerSettings& settings,
                               std::span<const ExpertLayer> layers)
    : settings_(settings),
      layers_(layers),
      window_(layers.size()),
      next_layer_(layers.size()),
      slice_bytes_(kFirstSliceBytes) {
  for (const ExpertLayer& layer : layers_) {
    maps_.push_back(layer.map);
    seen_.push_back(numbers(layer.choices));
    sampled_.push_back(numbers(layer.group_choices));
  }
}

void ExpertBalancer::plan(Step& step) {
  bytes_of_step_ = 0;
  // A step that is used again has the moves of an earlier one, also in its hash.
  const bool had_moves = !step.expert_moves.empty();
  step.expert_moves.clear();
  if (is_on() && settings_.num_iterations > 0) add_moves(step);
  if (step.hash != 0 && (had_moves || !step.expert_moves.empty())) step.hash = hash_step(step);
}

void ExpertBalancer::add_moves(Step& step) {
  ++num_steps_;
  if (!is_rebalancing() && num_steps_ > settings_.num_iterations) begin_rebalance();
  if (!changes_.empty())
    add_slice(step);
  else if (next_layer_ < layers_.size())
    plan_chunk();  // this step's share of the work
}

void ExpertBalancer::begin_rebalance() {
  num_steps_ = 0;
  double utilization = 0;
  int num_busy = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::vector<std::int64_t> now = numbers(layers_[i].choices);
    window_[i] = difference(now, seen_[i]);
    seen_[i] = now;
    if (sum(window_[i]) == 0) continue;
    utilization += balancedness(group_loads(maps_[i], window_[i], layers_[i].groups));
    ++num_busy;
  }
  if (num_busy == 0) return;
  utilization /= num_busy;
  if (settings_.min_utilization < 1 && utilization > settings_.min_utilization) {
    log_debug("experts stay: their load is balanced to {:.3f}", utilization);
    return;
  }
  ++report_.rebalances;
  next_layer_ = 0;
}

void ExpertBalancer::plan_chunk() {
  const std::size_t end =
      std::min(layers_.size(), next_layer_ + static_cast<std::size_t>(settings_.layers_per_chunk));
  for (; next_layer_ < end; ++next_layer_) {
    const ExpertLayer& layer = layers_[next_layer_];
    const std::vector<double>& load = window_[next_layer_];
    const ExpertMap& map = maps_[next_layer_];
    if (sum(load) == 0) continue;
    const ExpertMap wanted = aligned_map(map,
                                         balanced_map(load, {.places = static_cast<int>(map.size()),
                                                             .groups = layer.groups,
                                                             .max_replicas = layer.groups}),
                                         layer.groups);
    const double before = std::ranges::max(group_loads(map, load, layer.groups)),
                 after = std::ranges::max(group_loads(wanted, load, layer.groups));
    if (after > kWorthwhile * before) continue;
    for (const PlaceChange& change :
         changes_between(map, wanted, layer.num_experts(), layer.groups))
      changes_.push_back({next_layer_, change});
  }
}

void ExpertBalancer::add_slice(Step& step) {
  std::int64_t left = slice_bytes_;
  while (left > 0 && !changes_.empty()) {
    const auto& [layer, change] = changes_.front();
    const std::int64_t bytes = layers_[layer].first_rank_bytes;
    const std::int64_t end = std::min(bytes, moved_ + left);
    step.expert_moves.push_back({.layer = static_cast<std::int32_t>(layer),
                                 .expert = change.expert,
                                 .from = change.from,
                                 .to = change.to,
                                 .begin = moved_,
                                 .end = end});
    left -= end - moved_;
    bytes_of_step_ += end - moved_;
    moved_ = end;
    if (end < bytes) break;
    maps_[layer][static_cast<std::size_t>(change.to)] = change.expert;
    ++report_.changes;
    changes_.pop_front();
    moved_ = 0;
  }
}

void ExpertBalancer::step_done(double seconds, double move_s) {
  if (!is_on()) return;
  if (++num_sampled_ >= kStepsOfSample) sample_balancedness();
  if (bytes_of_step_ == 0) {
    step_s_.push_back(seconds);
    if (step_s_.size() > kMedianSteps) step_s_.pop_front();
    return;
  }
  report_.bytes_moved += static_cast<std::uint64_t>(bytes_of_step_);
  report_.move_s += move_s;
  // The last slice of a chunk is short, and says little of the rate.
  if (move_s <= 0 || step_s_.empty() || 2 * bytes_of_step_ < slice_bytes_) return;
  // As many bytes as fit into the time, at the rate of this step; at most twice as many as before.
  const double time = std::min(kMaxSliceS, kMaxSliceShare * median_step_s());
  const double fitting = static_cast<double>(bytes_of_step_) * time / move_s;
  const auto most = static_cast<double>(std::min(kMaxSliceBytes, 2 * slice_bytes_));
  slice_bytes_ = std::max(kMinSliceBytes, static_cast<std::int64_t>(std::min(fitting, most)));
}

double ExpertBalancer::median_step_s() const {
  std::vector<double> sorted(step_s_.begin(), step_s_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

void ExpertBalancer::sample_balancedness() {
  num_sampled_ = 0;
  double total = 0;
  int num_busy = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::vector<std::int64_t> now = numbers(layers_[i].group_choices);
    const std::vector<double> load = difference(now, sampled_[i]);
    sampled_[i] = now;
    if (sum(load) == 0) continue;
    total += balancedness(load);
    ++num_busy;
  }
  if (num_busy > 0) report_.balancedness = total / num_busy;
}

}  // namespace sluice
