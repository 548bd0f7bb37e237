#include "speculative/ngram.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace sluice {
namespace {

constexpr std::size_t kFirstPlaces = 64;

std::uint64_t with_token(std::uint64_t hash, std::int32_t token) {
  return hash_combine(hash, static_cast<std::uint32_t>(token));
}

}  // namespace

NgramDrafter::NgramDrafter(const NgramOptions& options, std::uint64_t seed)
    : options_(options), seed_(seed), table_(kFirstPlaces) {
  check(options.min_match >= 1 && options.min_match <= options.max_match,
        "matches of {} to {} tokens", options.min_match, options.max_match);
}

std::uint64_t NgramDrafter::hash_of(std::span<const std::int32_t> tokens, Entry ngram) const {
  std::uint64_t hash = seed_;
  for (std::int32_t i = 0; i < ngram.length; ++i)
    hash = with_token(hash, tokens[static_cast<std::size_t>(ngram.end - i)]);
  return hash;
}

NgramDrafter::Entry& NgramDrafter::place_of(std::span<const std::int32_t> tokens, Entry wanted,
                                            std::uint64_t hash) {
  const auto begin_of = [&](Entry e) { return tokens.begin() + e.end + 1 - e.length; };
  const std::size_t mask = table_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    Entry& entry = table_[i];
    if (entry.length == 0) return entry;
    if (entry.length == wanted.length &&
        std::equal(begin_of(entry), begin_of(entry) + entry.length, begin_of(wanted)))
      return entry;
  }
}

void NgramDrafter::grow(std::span<const std::int32_t> tokens) {
  std::vector<Entry> old(2 * table_.size());
  old.swap(table_);
  for (const Entry& entry : old)
    if (entry.length > 0) place_of(tokens, entry, hash_of(tokens, entry)) = entry;
}

// All n-grams that end before the last token.
void NgramDrafter::add_tokens(std::span<const std::int32_t> tokens) {
  const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
  for (; num_indexed_ < last; ++num_indexed_) {
    while (2 * (num_entries_ + static_cast<std::size_t>(options_.max_match)) > table_.size())
      grow(tokens);
    std::uint64_t hash = seed_;
    const std::int32_t longest = std::min(options_.max_match, num_indexed_ + 1);
    for (std::int32_t length = 1; length <= longest; ++length) {
      hash = with_token(hash, tokens[static_cast<std::size_t>(num_indexed_ + 1 - length)]);
      if (length < options_.min_match) continue;
      const Entry ngram{num_indexed_, length};
      Entry& place = place_of(tokens, ngram, hash);
      if (place.length > 0) continue;  // the first one stays
      place = ngram;
      ++num_entries_;
    }
  }
}

NgramMatch NgramDrafter::find(std::span<const std::int32_t> tokens) {
  add_tokens(tokens);
  NgramMatch best;
  const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
  std::uint64_t hash = seed_;
  // A suffix that is new has no longer one that is not.
  for (std::int32_t length = 1; length <= std::min(options_.max_match, last); ++length) {
    hash = with_token(hash, tokens[static_cast<std::size_t>(last + 1 - length)]);
    if (length < options_.min_match) continue;
    const Entry& place = place_of(tokens, {last, length}, hash);
    if (place.length == 0) break;
    best = {length, place.end + 1 - length};
  }
  return best;
}

void NgramDrafter::draft(std::span<const std::int32_t> tokens, int max_drafts,
                         std::vector<std::int32_t>& drafts) {
  const NgramMatch match = find(tokens);
  if (match.length == 0) return;
  const auto from = static_cast<std::size_t>(match.start + match.length);
  const std::size_t count =
      std::min(static_cast<std::size_t>(std::max(0, max_drafts)), tokens.size() - from);
  drafts.insert(drafts.end(), tokens.begin() + static_cast<std::ptrdiff_t>(from),
                tokens.begin() + static_cast<std::ptrdiff_t>(from + count));
}

}  // namespace sluice
