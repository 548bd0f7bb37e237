#include "speculative/suffix_store.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

constexpr int kShare = 4;  // groups that hold all answers of one namespace

}  // namespace

SuffixStore::SuffixStore(const SuffixStoreOptions& options, std::uint64_t seed)
    : options_(options), seed_(seed) {
  check(options.max_answers >= 0 && options.max_tokens >= 0, "{} answers of {} tokens",
        options.max_answers, options.max_tokens);
}

void SuffixStore::add(std::uint64_t name_space, std::span<const std::int32_t> answer) {
  // One token has no other behind it.
  if (options_.max_answers == 0 || answer.size() < 2) return;
  // The longest answer leaves room for others.
  const auto most = static_cast<std::size_t>(options_.max_tokens / kShare);
  answer = answer.last(std::min(answer.size(), most));
  Group& group = group_for(name_space);
  group.automaton.begin_text();
  for (const std::int32_t token : answer) group.automaton.append(token);
  ++group.num_answers;
  ++num_answers_;
  num_tokens_ += static_cast<std::int64_t>(answer.size());
  while (num_answers_ > options_.max_answers || num_tokens_ > options_.max_tokens) drop_oldest();
}

SuffixStore::Group& SuffixStore::group_for(std::uint64_t name_space) {
  std::vector<Groups::iterator>& own = by_namespace_[name_space];
  const bool is_full = own.empty() ||
                       own.back()->num_answers >= std::max(1, options_.max_answers / kShare) ||
                       own.back()->automaton.num_tokens() >= options_.max_tokens / kShare;
  if (is_full)
    own.push_back(groups_.insert(
        groups_.end(), Group{.name_space = name_space,
                             .automaton = SuffixAutomaton(
                                 {.max_length = options_.max_length, .has_counts = true}, seed_)}));
  return *own.back();
}

void SuffixStore::drop_oldest() {
  const auto oldest = groups_.begin();
  const auto own = by_namespace_.find(oldest->name_space);
  own->second.erase(own->second.begin());
  if (own->second.empty()) by_namespace_.erase(own);
  num_answers_ -= oldest->num_answers;
  num_tokens_ -= oldest->automaton.num_tokens();
  groups_.erase(oldest);
}

void SuffixStore::for_each(std::uint64_t name_space,
                           const std::function<void(SuffixAutomaton&)>& use) {
  const auto own = by_namespace_.find(name_space);
  if (own == by_namespace_.end()) return;
  for (const Groups::iterator& group : own->second) use(group->automaton);
}

}  // namespace sluice
