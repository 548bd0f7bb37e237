#include "engine/options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/nearest_name.h"

namespace sluice {
namespace {

constexpr std::string_view kEnvironmentPrefix = "SLUICE_ARG_";

// Variables of other engines whose subject does not exist here.
struct ForeignVariable {
  const char* name;
  std::string_view why;
};
constexpr ForeignVariable kForeignVariables[] = {
    {"SGLANG_FLASHINFER_WORKSPACE_SIZE", "FlashInfer is not used"},
    {"SGLANG_FLASHINFER_USE_TENSOR_CORE", "FlashInfer is not used"},
    {"SGL_CHUNKED_PREFIX_CACHE_THRESHOLD", "--mla-prefill chooses the method"},
    {"SGLANG_MAX_KV_CHUNK_CAPACITY", "--mla-prefill chooses the method"},
    {"SYNC_TOKEN_IDS_ACROSS_TP", "all ranks choose the same tokens, and each step compares them"},
};

std::string normalised(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

// Whether "auto, flashinfer" has the value.
bool lists(std::string_view allowed, std::string_view value) {
  for (std::size_t begin = 0; begin < allowed.size();) {
    const std::size_t end = std::min(allowed.find(", ", begin), allowed.size());
    if (allowed.substr(begin, end - begin) == value) return true;
    begin = end + 2;
  }
  return false;
}

// Calls visit(name) for the row's name and each alias; stops when it returns true.
template <class Visit>
bool any_name(const OptionRow& row, Visit&& visit) {
  if (visit(row.name)) return true;
  for (std::size_t begin = 0; begin < row.aliases.size();) {
    const std::size_t end = std::min(row.aliases.find(' ', begin), row.aliases.size());
    if (visit(row.aliases.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

const OptionRow* find_option(std::string_view name) {
  const std::string wanted = normalised(name);
  for (const OptionRow& row : option_table())
    if (any_name(row, [&](std::string_view candidate) { return candidate == wanted; })) return &row;
  return nullptr;
}

std::string nearest_option(std::string_view name) {
  const std::string wanted = normalised(name);
  if (wanted.size() > 64) return "";  // no name is that long: do not spend time on it
  std::string best;
  std::size_t best_distance = 1 + wanted.size() / 3;  // at most a third of the letters may be wrong
  std::string completion;
  for (const OptionRow& row : option_table())
    any_name(row, [&](std::string_view candidate) {
      if (completion.empty() && wanted.size() >= 3 && candidate.starts_with(wanted))
        completion = candidate;
      const std::size_t distance = edit_distance(wanted, candidate);
      if (distance < best_distance) {
        best = candidate;
        best_distance = distance;
      }
      return false;
    });
  return best.empty() ? completion : best;
}

void set_option(Options& options, std::string_view name, std::string_view value) {
  const OptionRow* row = find_option(name);
  if (row == nullptr) {
    const std::string near = nearest_option(name);
    fail(ErrorKind::kBadInput, "unknown option --{}{}", name,
         near.empty() ? "" : "; did you mean --" + near + "?");
  }
  switch (row->effect) {
    case OptionEffect::kIgnored:
      require(row->allowed.empty() || lists(row->allowed, value),
              "--{} {} is refused: {}; it stands for {}", name, value, row->help, row->allowed);
      log_info("--{} has no effect: {}", row->name, row->help);
      return;
    case OptionEffect::kRefused: {
      const bool asks_for_nothing =
          row->type == OptionType::kFlag
              ? (value == "false" || value == "0" || value == "no" || value == "off")
              : (!row->default_text.empty() && value == row->default_text);
      require(asks_for_nothing, "--{} {}is refused: {}", name,
              value.empty() ? "" : std::string(value) + " ", row->help);
      return;
    }
    case OptionEffect::kActive:
      break;
  }
  try {
    row->set(options, value);
  } catch (const Error& error) {
    fail(error.kind(), "--{}: {}; allowed: {}", name, error.message(), row->allowed);
  }
  if (std::ranges::count(options.names_given, row->name) == 0)
    options.names_given.push_back(row->name);
}

std::optional<std::uint64_t> fixed_seed(const Options& options) {
  if (options.random_seed < 0) return std::nullopt;
  return static_cast<std::uint64_t>(options.random_seed);
}

void apply_environment(Options& options) {
  for (const ForeignVariable& variable : kForeignVariables)
    if (std::getenv(variable.name) != nullptr)
      log_info("{} has no effect: {}", variable.name, variable.why);

  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(kEnvironmentPrefix)) continue;
    const std::size_t equals = std::min(text.find('='), text.size());
    std::string name(text.substr(kEnvironmentPrefix.size(), equals - kEnvironmentPrefix.size()));
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    try {
      set_option(options, normalised(name), equals < text.size() ? text.substr(equals + 1) : "");
    } catch (const Error& error) {
      fail(error.kind(), "environment variable {}: {}", text.substr(0, equals), error.message());
    }
  }
}

}  // namespace sluice
