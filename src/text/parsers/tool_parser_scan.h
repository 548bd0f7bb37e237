// Finds marks in text that arrives in pieces. Work per byte is bounded by the length of the marks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class MarkerScanner {
 public:
  // No marker may be a prefix of another.
  MarkerScanner() = default;
  explicit MarkerScanner(std::vector<std::string_view> markers) : markers_(std::move(markers)) {}

  // Takes one byte. Text that can no longer begin a marker is appended to `plain`. Returns the
  // index of the marker that the byte completes, or -1.
  int push(char c, std::string& plain) {
    held_ += c;
    while (!held_.empty()) {
      bool may_grow = false;
      for (std::size_t i = 0; i < markers_.size(); ++i) {
        if (!markers_[i].starts_with(held_)) continue;
        if (markers_[i].size() == held_.size()) {
          held_.clear();
          return static_cast<int>(i);
        }
        may_grow = true;
      }
      if (may_grow) return -1;
      plain += held_[0];
      held_.erase(0, 1);
    }
    return -1;
  }

  // The end of the text: the held text is plain.
  void flush(std::string& plain) {
    plain += held_;
    held_.clear();
  }

  bool holding() const { return !held_.empty(); }
  const std::string& held() const { return held_; }
  std::string_view marker(int index) const { return markers_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<std::string_view> markers_;  // views of static storage
  std::string held_;                       // the longest suffix of the text that begins a marker
};

inline bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace sluice
