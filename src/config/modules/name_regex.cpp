#include "config/modules/name_regex.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr std::size_t kMaxPattern = 4096, kMaxSteps = 8192, kMaxDepth = 64;
constexpr int kMaxTimes = 256;

std::bitset<256> range_of(unsigned char first, unsigned char last) {
  std::bitset<256> out;
  for (unsigned c = first; c <= last; ++c) out.set(c);
  return out;
}

// The bytes of \d, \w and \s, and of their complements; nothing: another letter.
std::optional<std::bitset<256>> class_of(char letter) {
  std::bitset<256> out;
  switch (letter | 0x20) {
    case 'd':
      out = range_of('0', '9');
      break;
    case 'w':
      out = range_of('0', '9') | range_of('a', 'z') | range_of('A', 'Z');
      out.set('_');
      break;
    case 's':
      out = range_of('\t', '\r');
      out.set(' ');
      break;
    default:
      return std::nullopt;
  }
  return letter >= 'a' ? out : ~out;
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

// 1. Atoms append steps. 2. A quantifier wraps or repeats the last atom. 3. '|' puts a split before
// the alternative. 4. ')' leads the ends of all alternatives to one place.
class NameRegex::Reader {
 public:
  explicit Reader(std::string_view pattern) : rest_(pattern) {}

  std::optional<NameRegex> run() {
    bool is_read = rest_.size() <= kMaxPattern;
    while (is_read && !rest_.empty()) is_read = read_next() && steps_.size() <= kMaxSteps;
    if (!is_read || groups_.size() != 1) return std::nullopt;
    close_group();
    steps_.push_back({});
    NameRegex out;
    out.steps_ = std::move(steps_);
    return out;
  }

 private:
  struct Group {
    std::size_t begin = 0, alternative = 0;
    std::vector<std::size_t> ends;  // jumps from behind earlier alternatives
  };

  char take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  bool read_next() {
    const char c = take();
    switch (c) {
      case '(':
        if (skip("?:") || !rest_.starts_with('?')) {
          groups_.push_back({steps_.size(), steps_.size(), {}});
          atom_ = std::nullopt;
          return groups_.size() <= kMaxDepth;
        }
        return false;
      case ')':
        if (groups_.size() == 1) return false;
        atom_ = groups_.back().begin;
        close_group();
        groups_.pop_back();
        return true;
      case '|':
        end_alternative();
        return true;
      case '*':
        return repeat(0, -1);
      case '+':
        return repeat(1, -1);
      case '?':
        return repeat(0, 1);
      case '{':
        return read_times();
      case '^':
      case '$':
        steps_.push_back({.kind = c == '^' ? Kind::kBegin : Kind::kEnd});
        atom_ = std::nullopt;
        return true;
      case '[':
        return read_class();
      case '.':
        return add(~Bytes().set('\n'));
      case '\\':
        return read_escape(nullptr);
      default:
        return add(Bytes().set(static_cast<unsigned char>(c)));
    }
  }

  bool add(const Bytes& bytes) {
    atom_ = steps_.size();
    steps_.push_back({.kind = Kind::kBytes, .bytes = bytes});
    return true;
  }

  // Behind '\\': into `set`, or as an atom.
  bool read_escape(Bytes* set) {
    if (rest_.empty()) return false;
    const char c = take();
    std::optional<Bytes> bytes = class_of(c);
    if (!bytes) {
      if (is_letter_or_digit(c)) return false;
      bytes = Bytes().set(static_cast<unsigned char>(c));
    }
    if (set == nullptr) return add(*bytes);
    *set |= *bytes;
    return true;
  }

  bool read_class() {
    const bool is_negated = skip("^");
    Bytes set;
    for (bool is_first = true; !rest_.empty(); is_first = false) {
      const char c = take();
      if (c == ']' && !is_first) return add(is_negated ? ~set : set);
      if (c == '\\') {
        if (!read_escape(&set)) return false;
      } else if (rest_.size() >= 2 && rest_[0] == '-' && rest_[1] != ']') {
        take();
        const char last = take();
        if (last == '\\' || static_cast<unsigned char>(last) < static_cast<unsigned char>(c))
          return false;
        set |= range_of(static_cast<unsigned char>(c), static_cast<unsigned char>(last));
      } else {
        set.set(static_cast<unsigned char>(c));
      }
    }
    return false;
  }

  std::optional<int> read_number() {
    int number = 0;
    bool any = false;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      number = std::min(kMaxTimes + 1, number * 10 + (take() - '0'));
      any = true;
    }
    return any ? std::optional(number) : std::nullopt;
  }

  bool read_times() {
    const std::optional<int> min = read_number();
    if (!min) return false;
    int max = *min;
    if (skip(",")) max = read_number().value_or(-1);
    return skip("}") && *min <= kMaxTimes && max <= kMaxTimes && (max < 0 || *min <= max) &&
           repeat(*min, max);
  }

  // The last atom from `min` to `max` times; -1: without an end.
  bool repeat(int min, int max) {
    skip("?");  // a lazy quantifier matches the same names
    if (!atom_ || rest_.starts_with('+')) return false;
    const std::size_t begin = *atom_;
    const std::vector<Step> atom(steps_.begin() + static_cast<std::ptrdiff_t>(begin), steps_.end());
    const auto size = static_cast<int>(atom.size());
    if (static_cast<std::size_t>(std::max({min, max, 1})) * (atom.size() + 2) > kMaxSteps)
      return false;
    steps_.resize(begin);
    for (int i = 0; i < min; ++i) steps_.insert(steps_.end(), atom.begin(), atom.end());
    if (max < 0) {
      steps_.push_back({.kind = Kind::kSplit, .first = 1, .second = size + 2});
      steps_.insert(steps_.end(), atom.begin(), atom.end());
      steps_.push_back({.kind = Kind::kJump, .first = -(size + 1)});
    }
    for (int i = min; i < max; ++i) {
      steps_.push_back({.kind = Kind::kSplit, .first = 1, .second = size + 1});
      steps_.insert(steps_.end(), atom.begin(), atom.end());
    }
    atom_ = std::nullopt;
    return true;
  }

  void end_alternative() {
    Group& group = groups_.back();
    const auto size = static_cast<int>(steps_.size() - group.alternative);
    steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(group.alternative),
                  {.kind = Kind::kSplit, .first = 1, .second = size + 2});
    group.ends.push_back(steps_.size());
    steps_.push_back({.kind = Kind::kJump});
    group.alternative = steps_.size();
    atom_ = std::nullopt;
  }

  void close_group() {
    for (const std::size_t end : groups_.back().ends)
      steps_[end].first = static_cast<int>(steps_.size() - end);
  }

  std::string_view rest_;
  std::vector<Step> steps_;
  std::vector<Group> groups_{Group{}};
  std::optional<std::size_t> atom_;  // where the last one begins
};

std::optional<NameRegex> NameRegex::read(std::string_view pattern) {
  return Reader(pattern).run();
}

bool NameRegex::matches(std::string_view name) const {
  std::vector<std::size_t> now, next, open;
  std::vector<std::size_t> seen(steps_.size(), 0);  // characters read, and 1
  bool is_over = false;
  // Adds what can be reached from a step without a character.
  const auto enter = [&](std::size_t at, std::size_t position, std::vector<std::size_t>& to) {
    open.push_back(at);
    while (!open.empty()) {
      const std::size_t step = open.back();
      open.pop_back();
      if (seen[step] == position + 1) continue;
      seen[step] = position + 1;
      const auto target = [&](int by) {
        return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(step) + by);
      };
      const Step& own = steps_[step];
      const bool passes = own.kind == Kind::kSplit || own.kind == Kind::kJump ||
                          (own.kind == Kind::kBegin && position == 0) ||
                          (own.kind == Kind::kEnd && position == name.size());
      if (passes) open.push_back(target(own.first));
      if (own.kind == Kind::kSplit) open.push_back(target(own.second));
      if (own.kind == Kind::kBytes) to.push_back(step);
      is_over = is_over || own.kind == Kind::kMatch;
    }
  };
  enter(0, 0, now);
  for (std::size_t position = 0; position < name.size() && !is_over && !now.empty(); ++position) {
    next.clear();
    for (const std::size_t step : now)
      if (steps_[step].bytes.test(static_cast<unsigned char>(name[position])))
        enter(step + 1, position + 1, next);
    now.swap(next);
  }
  return is_over;
}

}  // namespace sluice
