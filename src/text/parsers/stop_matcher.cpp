#include "text/parsers/stop_matcher.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {

StopStrings::StopStrings(std::vector<std::string> strings) {
  for (std::string& text : strings) {
    check(!text.empty(), "an empty stop string");
    std::vector<std::uint32_t> fallback(text.size() + 1, 0);
    for (std::size_t i = 1, length = 0; i < text.size(); ++i) {
      while (length > 0 && text[i] != text[length]) length = fallback[length];
      if (text[i] == text[length]) ++length;
      fallback[i + 1] = static_cast<std::uint32_t>(length);
    }
    patterns_.push_back({std::move(text), std::move(fallback), 0});
  }
}

int StopStrings::push(char byte) {
  int best = -1;
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    Pattern& pattern = patterns_[i];
    while (pattern.matched > 0 && pattern.text[pattern.matched] != byte)
      pattern.matched = pattern.fallback[pattern.matched];
    if (pattern.text[pattern.matched] == byte) ++pattern.matched;
    if (pattern.matched < pattern.text.size()) continue;
    pattern.matched = pattern.fallback[pattern.matched];
    if (best < 0 || pattern.text.size() > string(best).size()) best = static_cast<int>(i);
  }
  return best;
}

std::size_t StopStrings::num_held() const {
  std::size_t held = 0;
  for (const Pattern& pattern : patterns_) held = std::max(held, pattern.matched);
  return held;
}

bool StopStringMatcher::push(std::int32_t token) {
  bool matched = false;
  for (const char byte : detokenizer_.push(token)) matched = strings_.push(byte) >= 0 || matched;
  return matched;
}

std::string StopFilter::push(std::string_view text, bool may_stop) {
  if (stopped()) return "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int match = strings_.push(text[i]);
    if (match < 0 || !may_stop) continue;
    matched_ = match;
    std::string out = std::move(held_).append(text.substr(0, i + 1));
    held_.clear();
    // A match may begin inside text already sent only if that text completed an ignored match.
    if (!include_stop_)
      out.resize(out.size() - std::min(out.size(), strings_.string(match).size()));
    return out;
  }
  held_ += text;
  const std::size_t free = held_.size() - std::min(held_.size(), strings_.num_held());
  std::string out = held_.substr(0, free);
  held_.erase(0, free);
  return out;
}

std::string StopFilter::flush() {
  std::string out = std::move(held_);
  held_.clear();
  return out;
}

}  // namespace sluice
