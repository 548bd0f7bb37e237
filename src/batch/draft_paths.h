// The paths of a tree of drafts, from the parents of its rows (ItemBranches::parents).
//
//   const DraftPaths paths = paths_of(parents);
//   paths.depths[row];  paths.branches[row];          // bit b: the row is on the path of branch b
//   rows = right_rows(parents, row_tokens, tokens);   // from the tokens that a step brought
//
// Row 0 is the known token, and parents stand before their children. A branch is a path from row 0
// to a row without children. Branch 0 is that of first children, the next ones follow depth first.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

inline constexpr std::size_t kMaxTreeRows = 64;

struct DraftPaths {
  std::vector<std::int32_t> depths;     // [rows] 0 for row 0
  std::vector<std::uint64_t> branches;  // [rows]
  int count = 0;                        // of branches

  int depth() const;  // of the deepest row
  // The first branch of a row, in whose pages the row is computed.
  int branch_of(std::size_t row) const { return std::countr_zero(branches[row]); }
};

// A bug unless there are 1 to kMaxTreeRows rows with parents before them.
DraftPaths paths_of(std::span<const std::int32_t> parents);

// The rows that `tokens` confirm: row 0, its child that holds the first token, and so on. As many
// as tokens where these come from a step with these rows.
std::vector<std::int32_t> right_rows(std::span<const std::int32_t> parents,
                                     std::span<const std::int32_t> row_tokens,
                                     std::span<const std::int32_t> tokens);

// Whether each draft follows the one before it, by BatchResult::draft_parents.
bool is_chain(std::span<const std::int32_t> draft_parents);

// Drafts as results bring them (BatchResult::draft_parents).
struct DraftList {
  std::vector<std::int32_t>&tokens, &parents;
};
// Keeps drafts of which `keep` says true and whose forerunners are kept; the order stays.
template <class Keep>
void keep_drafts(const DraftList& drafts, const Keep& keep) {
  std::vector<std::int32_t> places(drafts.tokens.size() + 1, -1);
  places[0] = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < drafts.tokens.size(); ++i) {
    const std::int32_t parent = places[static_cast<std::size_t>(drafts.parents[i])];
    if (parent < 0 || !keep(i)) continue;
    drafts.tokens[count] = drafts.tokens[i];
    drafts.parents[count] = parent;
    places[i + 1] = static_cast<std::int32_t>(++count);
  }
  drafts.tokens.resize(count);
  drafts.parents.resize(count);
}

}  // namespace sluice
