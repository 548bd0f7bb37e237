#include "runtime/expert_location.h"

#include <span>

#include "base/file.h"
#include "base/json.h"
#include "experts/balance.h"

namespace sluice {
namespace {

constexpr std::string_view kOption = "--init-expert-location";
constexpr std::string_view kMap = "physical_to_logical_map", kCount = "logical_count";
constexpr std::uint64_t kMaxFileBytes = 64 << 20;

Json read_location(const std::string& location) {
  if (location.starts_with('{')) return parse_json_or_throw(location, kOption);
  require(!location.ends_with(".pt"),
          "{} {}: files of torch are not read; write its physical_to_logical_map or logical_count "
          "as JSON",
          kOption, location);
  const File file = open_regular_file(location);
  require(file.size() <= kMaxFileBytes, "{} {}: {} bytes, and at most {} are read", kOption,
          location, file.size(), kMaxFileBytes);
  std::string text(file.size(), '\0');
  require(file.read(0, std::as_writable_bytes(std::span(text))), "{} {}: the file has changed",
          kOption, location);
  return parse_json_or_throw(text, fmt::format("{} {}", kOption, location));
}

// The row of a layer as numbers in [0, max].
template <class T>
std::vector<T> numbers_of(const Json& row, std::size_t count, double max,
                          const std::string& where) {
  require(row.is_array() && row.size() == count, "{}: {} {} wanted, and there {} {}", where, count,
          count == 1 ? "number is" : "numbers are", row.is_array() ? "are" : "is",
          row.is_array() ? std::to_string(row.size()) : std::string("no list"));
  std::vector<T> out;
  for (const Json& value : row) {
    require(value.is_number() && value.get<double>() >= 0 && value.get<double>() <= max &&
                (std::is_floating_point_v<T> || value.is_number_integer()),
            "{}: {} is no number from 0 to {}", where, dump_json(value), max);
    out.push_back(static_cast<T>(value.get<double>()));
  }
  return out;
}

// A list with a row for each decoder layer.
void require_rows(const Json& rows, int num_layers, const std::string& where) {
  require(rows.is_array() && static_cast<int>(rows.size()) == num_layers,
          "{}: a row for each of {} layers wanted, and there {}", where, num_layers,
          rows.is_array() ? fmt::format("are {}", rows.size()) : std::string("is no list"));
}

}  // namespace

void place_by_location(const std::string& location, const ModelConfig& config, int groups,
                       ExpertMaps& maps) {
  if (location == "trivial") return;
  const Json json = read_location(location);
  require(json.is_object() && json.contains(kMap) != json.contains(kCount),
          "{}: an object with either {} or {} wanted", kOption, kMap, kCount);
  const bool is_map = json.contains(kMap);
  const std::string what = fmt::format("{}, {}", kOption, is_map ? kMap : kCount);
  const Json& rows = json.at(is_map ? kMap : kCount);
  // Counts may come by step, as a recorder writes them.
  const bool by_step = !is_map && rows.is_array() && !rows.empty() && rows[0].is_array() &&
                       !rows[0].empty() && rows[0][0].is_array();
  if (by_step)
    for (const Json& step : rows) require_rows(step, config.num_layers, what);
  else
    require_rows(rows, config.num_layers, what);
  const int experts = config.moe->num_experts;
  std::size_t next = 0;
  for (int i = 0; i < config.num_layers; ++i) {
    if (!config.layer(i).is_moe) continue;
    ExpertMap& map = maps.layers.at(next++);
    const auto layer = static_cast<std::size_t>(i);
    const std::string where = fmt::format("{}, layer {}", what, i);
    if (is_map) {
      map = numbers_of<std::int32_t>(rows[layer], map.size(), experts - 1, where);
      const std::string error = map_error(map, experts);
      require(error.empty(), "{}: {}", where, error);
      continue;
    }
    std::vector<double> counts(static_cast<std::size_t>(experts));
    const auto add = [&](const Json& row) {
      const std::vector<double> more = numbers_of<double>(row, counts.size(), 1e15, where);
      for (std::size_t e = 0; e < counts.size(); ++e) counts[e] += more[e];
    };
    if (by_step)
      for (const Json& step : rows) add(step[layer]);
    else
      add(rows[layer]);
    map = balanced_map(
        counts, {.places = static_cast<int>(map.size()), .groups = groups, .max_replicas = groups});
  }
}

}  // namespace sluice
