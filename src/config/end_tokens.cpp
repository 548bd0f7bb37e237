#include "config/end_tokens.h"

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

constexpr std::size_t kMaxIgnored = 16;  // more of them say nothing new
constexpr std::size_t kMaxShown = 60;    // bytes of a value in a sentence

// The integer of a JSON number; one beyond int64 is larger than every id.
bool read_integer(const Json& value, std::int64_t& id) {
  if (!value.is_number_integer()) return false;
  const bool huge = value.is_number_unsigned() &&
                    value.get<std::uint64_t>() >
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  id = huge ? std::numeric_limits<std::int64_t>::max() : value.get<std::int64_t>();
  return true;
}

}  // namespace

void EndTokens::add(std::int64_t id, const std::string& place) {
  if (id < 0 || id >= vocab_size_) return ignore(std::to_string(id), place);
  std::vector<std::string>& names = places_[static_cast<int>(id)];
  if (std::find(names.begin(), names.end(), place) == names.end()) names.push_back(place);
}

void EndTokens::add_json(const Json& value, const std::string& place) {
  if (value.is_null()) return;
  const auto add_one = [&](const Json& item) {
    std::int64_t id = 0;
    if (!read_integer(item, id)) return ignore(dump_json(item), place);
    if (id != -1) add(id, place);
  };
  if (!value.is_array()) return add_one(value);
  for (const Json& item : value) add_one(item);
}

void EndTokens::ignore(std::string_view seen, const std::string& place) {
  if (ignored_.size() >= kMaxIgnored) return;
  const std::string text = seen.size() <= kMaxShown
                               ? std::string(seen)
                               : std::string(seen.substr(0, kMaxShown - 3)) + "...";
  std::string sentence =
      fmt::format("{} is {}, which is no id of the {} tokens of the vocabulary and will never come",
                  place, text, vocab_size_);
  if (std::find(ignored_.begin(), ignored_.end(), sentence) == ignored_.end())
    ignored_.push_back(std::move(sentence));
}

std::vector<int> EndTokens::ids() const {
  std::vector<int> ids;
  for (const auto& [id, names] : places_) ids.push_back(id);
  return ids;
}

std::vector<int> usable_ids(const Json& value) {
  std::vector<int> ids;
  const auto add_one = [&](const Json& item) {
    std::int64_t id = 0;
    if (read_integer(item, id) && id >= 0 && id <= std::numeric_limits<int>::max())
      ids.push_back(static_cast<int>(id));
  };
  if (value.is_array())
    for (const Json& item : value) add_one(item);
  else
    add_one(value);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace sluice
