// Where the thoughts of an answer stand in its text, and how many of its tokens are theirs.
//
//   ThoughtTokens tokens;
//   tokens.add(starts);                          // of the tokens, in order
//   tokens.settle(parser.thoughts(), parser.num_divided());
//   tokens.count();
//
// A token belongs to a thought if it begins between the thought's marks. So the count is the same
// however the tokens arrive. One thread uses an object.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace sluice {

constexpr std::size_t kTextEnd = std::numeric_limits<std::size_t>::max();

// Bytes of the text between two marks. The end of an open thought is kTextEnd.
struct ThoughtRange {
  std::size_t begin = 0;
  std::size_t end = kTextEnd;
};

class ThoughtTokens {
 public:
  // `starts`: by token, the number of bytes before it in the text. Never less than before.
  void add(std::span<const std::size_t> starts) {
    open_.insert(open_.end(), starts.begin(), starts.end());
  }
  // `ranges` in order; what they say of the bytes before `num_divided` does not change later.
  void settle(std::span<const ThoughtRange> ranges, std::size_t num_divided) {
    std::size_t settled = 0;
    for (; settled < open_.size() && open_[settled] < num_divided; ++settled)
      for (const ThoughtRange& range : ranges)
        count_ += open_[settled] >= range.begin && open_[settled] < range.end ? 1 : 0;
    open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(settled));
  }
  int count() const { return count_; }

 private:
  std::vector<std::size_t> open_;  // tokens that are not settled
  int count_ = 0;
};

}  // namespace sluice
