// Plans where experts are while the model serves (docs/ranks.md): after a number of steps it makes
// new maps from what experts had to do, and gives the moves to steps in slices.
//
//   ExpertBalancer balancer(settings, runner.expert_layers());
//   balancer.plan(step);                       // before its launch
//   balancer.step_done(seconds, move_seconds);
//
// The moves are a part of the step, which ranks compare by its hash. A slice is as large as fits
// into a part of the median step, and into a millisecond. The balancer keeps maps of its own, which
// equal those of the ranks after each launch. Engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "batch/batch.h"
#include "experts/moves.h"
#include "layers/weights/expert_layer.h"

namespace sluice {

struct BalancerSettings {
  std::int64_t num_iterations = 0;  // steps between the beginnings of rebalances; 0: there are none
  int layers_per_chunk = 1;         // layers whose new maps are made in one step
  double min_utilization = 1;       // no rebalance where balancedness is above it; 1: always
};

// What the balancer has done, for metrics.
struct ExpertReport {
  double balancedness = 1;
  std::uint64_t rebalances = 0, changes = 0, bytes_moved = 0;
  double move_s = 0;
};

class ExpertBalancer {
 public:
  // A slice takes at most so long, and at most this part of a median step.
  static constexpr double kMaxSliceS = 1e-3, kMaxSliceShare = 0.04;

  // `layers` outlive the balancer. Where there are none it does nothing.
  ExpertBalancer(const BalancerSettings& settings, std::span<const ExpertLayer> layers);

  bool is_on() const { return !layers_.empty(); }
  // Fills step.expert_moves, and step.hash anew where there are any.
  void plan(Step& step);
  // `move_s`: what the moves of the step took; 0: it had none.
  void step_done(double seconds, double move_s);
  const ExpertReport& report() const { return report_; }
  bool is_rebalancing() const { return next_layer_ < layers_.size() || !changes_.empty(); }
  std::span<const ExpertMap> maps() const { return maps_; }

 private:
  struct LayerChange {
    std::size_t layer = 0;
    PlaceChange change;
  };
  void add_moves(Step& step);
  void begin_rebalance();
  void plan_chunk();
  void add_slice(Step& step);
  void sample_balancedness();
  double median_step_s() const;

  const BalancerSettings settings_;
  const std::span<const ExpertLayer> layers_;
  std::vector<ExpertMap> maps_;
  std::int64_t num_steps_ = 0;                   // since the last rebalance began
  std::vector<std::vector<std::int64_t>> seen_;  // [layers][experts] choices at that time
  std::vector<std::vector<double>> window_;      // [layers][experts] of the rebalance in progress
  std::size_t next_layer_;                       // to be planned; past the end: there is none
  std::deque<LayerChange> changes_;              // of the chunk, in order
  std::int64_t moved_ = 0;                       // bytes of the first change that are moved
  std::int64_t slice_bytes_;
  std::int64_t bytes_of_step_ = 0;                  // moved in the step that was planned last
  std::deque<double> step_s_;                       // of the last steps without moves
  std::int64_t num_sampled_ = 0;                    // steps since the last sample of balancedness
  std::vector<std::vector<std::int64_t>> sampled_;  // [layers][groups] choices at that time
  ExpertReport report_;
};

}  // namespace sluice
