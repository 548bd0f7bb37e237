#include "base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

constexpr std::size_t kMaxBytes = 64;  // a longer name is not worth the time

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() > kMaxBytes) return {};
  std::string_view best;
  std::size_t least = 1 + name.size() / 3;  // at most a third of the letters may be wrong
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= least) continue;
    best = candidate;
    least = distance;
  }
  return best;
}

}  // namespace sluice
