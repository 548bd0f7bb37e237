// Sets of values that are stored once and named by index.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::grammar {

inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15 + (hash << 6) + (hash >> 2);
  hash *= 0xFF51AFD7ED558CCD;
  return hash ^ hash >> 29;
}

// Lists of T, each stored once. T has hash_value(hash) and operator==. An id is a dense index.
template <class T>
class ListInterner {
 public:
  ListInterner() : table_(64, kFree) {}

  // `tag` is part of the value.
  std::uint32_t add(std::span<const T> list, std::uint32_t tag = 0) {
    std::uint64_t hash = mix_hash(list.size(), tag);
    for (const T& item : list) hash = item.hash_value(hash);
    std::size_t slot = hash & (table_.size() - 1);
    for (; table_[slot] != kFree; slot = (slot + 1) & (table_.size() - 1)) {
      const Entry& entry = entries_[table_[slot]];
      if (entry.hash != hash || entry.tag != tag || entry.count != list.size()) continue;
      if (std::equal(list.begin(), list.end(), items_.begin() + entry.first)) return table_[slot];
    }
    const auto id = static_cast<std::uint32_t>(entries_.size());
    table_[slot] = id;
    entries_.push_back({hash, static_cast<std::uint32_t>(items_.size()),
                        static_cast<std::uint32_t>(list.size()), tag});
    items_.insert(items_.end(), list.begin(), list.end());
    if (entries_.size() * 2 > table_.size()) grow();
    return id;
  }
  // Valid until the next add().
  std::span<const T> at(std::uint32_t id) const {
    return std::span(items_).subspan(entries_[id].first, entries_[id].count);
  }
  std::uint32_t tag(std::uint32_t id) const { return entries_[id].tag; }
  std::size_t size() const { return entries_.size(); }
  std::uint64_t bytes() const {
    return items_.size() * sizeof(T) + entries_.size() * sizeof(Entry) + table_.size() * 4;
  }

 private:
  static constexpr std::uint32_t kFree = ~0u;
  struct Entry {
    std::uint64_t hash;
    std::uint32_t first, count, tag;
  };
  void grow() {
    table_.assign(table_.size() * 2, kFree);
    for (std::uint32_t id = 0; id < entries_.size(); ++id) {
      std::size_t slot = entries_[id].hash & (table_.size() - 1);
      while (table_[slot] != kFree) slot = (slot + 1) & (table_.size() - 1);
      table_[slot] = id;
    }
  }

  std::vector<T> items_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> table_;
};

// A word, for lists of numbers.
struct Word {
  std::uint64_t value = 0;
  std::uint64_t hash_value(std::uint64_t hash) const { return mix_hash(hash, value); }
  bool operator==(const Word&) const = default;
};

}  // namespace sluice::grammar
