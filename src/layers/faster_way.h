// Which of two ways to do the same takes less time on this machine, found out while it is done.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

namespace sluice {

// Both ways are tried kTrials times in turn; from then on it is the one whose best trial took less for a byte.
class FasterWay {
 public:
  static constexpr int kTrials = 3;

  // Whether to go the second way next.
  bool second() const { return trials_ < 2 * kTrials ? trials_ % 2 != 0 : least_[1] < least_[0]; }
  // How long a piece of so many bytes took that was done this way.
  void took(bool second, double seconds, double bytes) {
    double& least = least_[second ? 1 : 0];
    least = std::min(least, seconds / bytes);
    ++trials_;
  }

 private:
  int trials_ = 0;
  std::array<double, 2> least_ = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
};

}  // namespace sluice
