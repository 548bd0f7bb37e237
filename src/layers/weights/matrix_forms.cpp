#include "layers/weights/matrix_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sluice {
namespace {

std::string count_of(std::size_t count) {
  return fmt::format("{} matri{}", count, count == 1 ? "x" : "ces");
}

struct Group {
  const MatrixForm* first;
  std::size_t count;
};

// Matrices that are alike in `same`, in the order of their first ones.
template <class Same>
std::vector<Group> groups_of(const std::vector<MatrixForm>& forms, bool widened, Same&& same) {
  std::vector<Group> groups;
  for (const MatrixForm& form : forms) {
    if (form.widened_because.empty() == widened) continue;
    const auto group =
        std::ranges::find_if(groups, [&](const Group& of) { return same(*of.first, form); });
    if (group == groups.end())
      groups.push_back({&form, 1});
    else
      ++group->count;
  }
  return groups;
}

}  // namespace

std::string computed_as_stored(const std::vector<MatrixForm>& forms) {
  std::vector<std::string> parts;
  for (const Group& group : groups_of(forms, false, [](const MatrixForm& a, const MatrixForm& b) {
         return a.stored == b.stored;
       }))
    parts.push_back(fmt::format("{} in {}", group.first->stored, count_of(group.count)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string widened_when_read(const std::vector<MatrixForm>& forms) {
  std::vector<std::string> parts;
  for (const Group& group : groups_of(forms, true, [](const MatrixForm& a, const MatrixForm& b) {
         return a.stored == b.stored && a.widened_because == b.widened_because;
       }))
    parts.push_back(fmt::format("{} in {}, {}{}: {}", group.first->stored, count_of(group.count),
                                group.count == 1 ? "" : "among them ", group.first->name,
                                group.first->widened_because));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace sluice
