#include "speculative/drafter_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <random>

#include <fmt/format.h>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::string_view kNotComputed =
    "drafts of this kind are not computed by this version; EAGLE, EAGLE3, DFLASH and STANDALONE "
    "load draft models";

constexpr std::array kRows = {
    DraftMethodRow{.name = "NONE", .aliases = "", .method = DraftMethod::kNone},
    DraftMethodRow{.name = "NGRAM",
                   .aliases = "prompt_lookup",
                   .method = DraftMethod::kNgram,
                   .default_drafts = 7},
    DraftMethodRow{.name = "SUFFIX",
                   .aliases = "",
                   .method = DraftMethod::kSuffix,
                   .default_drafts = SuffixOptions{}.max_tree_depth},
    DraftMethodRow{.name = "NEXTN",
                   .aliases = "mtp deepseek_mtp glm4_moe_mtp glm4_moe_lite_mtp ernie_mtp "
                              "mimo_mtp qwen3_next_mtp qwen3_5_mtp",
                   .method = DraftMethod::kNextn,
                   .default_drafts = 3},
    DraftMethodRow{.name = "EAGLE",
                   .aliases = "",
                   .method = DraftMethod::kEagle,
                   .default_drafts = 3,
                   .has_model = true},
    DraftMethodRow{.name = "EAGLE3",
                   .aliases = "",
                   .method = DraftMethod::kEagle3,
                   .default_drafts = 3,
                   .has_model = true},
    DraftMethodRow{.name = "DFLASH",
                   .aliases = "",
                   .method = DraftMethod::kDflash,
                   .default_drafts = 15,
                   .has_model = true},
    DraftMethodRow{.name = "STANDALONE",
                   .aliases = "draft_model",
                   .method = DraftMethod::kStandalone,
                   .default_drafts = 3,
                   .has_model = true},
    DraftMethodRow{.name = "MEDUSA", .aliases = "mlp_speculator", .refusal = kNotComputed},
};

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

bool has_name(const DraftMethodRow& row, std::string_view name) {
  if (same_name(row.name, name)) return true;
  for (std::size_t begin = 0; begin < row.aliases.size();) {
    const std::size_t end = std::min(row.aliases.find(' ', begin), row.aliases.size());
    if (same_name(row.aliases.substr(begin, end - begin), name)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::span<const DraftMethodRow> draft_method_table() {
  return kRows;
}

const DraftMethodRow* find_draft_method(std::string_view name) {
  const auto found =
      std::ranges::find_if(kRows, [&](const DraftMethodRow& row) { return has_name(row, name); });
  return found == kRows.end() ? nullptr : &*found;
}

const DraftMethodRow& draft_method_row(DraftMethod method) {
  const auto found = std::ranges::find_if(kRows, [&](const DraftMethodRow& row) {
    return row.refusal.empty() && row.method == method;
  });
  check(found != kRows.end(), "draft method {} has no row", static_cast<int>(method));
  return *found;
}

std::string describe(const SpeculationOptions& options) {
  const std::string_view name = draft_method_row(options.method).name;
  std::string text =
      fmt::format("{}, up to {} drafts for a sequence in a step",
                  options.has_method() ? name : "tokens that grammars force", options.max_drafts);
  if (options.has_trees())
    text += fmt::format(", in trees of {} steps with {} behind each token", options.steps,
                        options.topk);
  if (options.has_method() && options.forced_tokens) text += ", those that grammars force first";
  if (options.method == DraftMethod::kNgram)
    text += fmt::format(", behind matches of {} to {} tokens", options.ngram.min_match,
                        options.ngram.max_match);
  if (options.method == DraftMethod::kSuffix)
    text +=
        fmt::format(", behind matches of the request and of {}",
                    options.suffix.max_cached_requests == 0
                        ? "no other"
                        : fmt::format("the last {} answers", options.suffix.max_cached_requests));
  return text;
}

namespace {

// The last token again and again.
class SyntheticDrafter final : public TokenDrafter {
 public:
  void draft(std::span<const std::int32_t> tokens, int max_drafts,
             std::vector<std::int32_t>& drafts) override {
    drafts.insert(drafts.end(), static_cast<std::size_t>(max_drafts), tokens.back());
  }
};

// For servers whose drafts come from grammars alone.
class NoDrafter final : public TokenDrafter {
 public:
  void draft(std::span<const std::int32_t>, int, std::vector<std::int32_t>&) override {}
};

}  // namespace

DrafterMaker make_synthetic_drafter(const SpeculationOptions& options) {
  if (!options.has_method() || !options.reads_text()) return {};
  return [](const DraftedChoice&) { return std::make_unique<SyntheticDrafter>(); };
}

DrafterMaker make_drafter(const SpeculationOptions& options) {
  if (!options.is_on() || !options.reads_text()) return {};
  if (!options.has_method())
    return [](const DraftedChoice&) { return std::make_unique<NoDrafter>(); };
  const std::uint64_t seed = std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
  if (options.method == DraftMethod::kNgram)
    return [ngram = options.ngram, seed](const DraftedChoice&) {
      return std::make_unique<NgramDrafter>(ngram, seed);
    };
  const SuffixOptions& suffix = options.suffix;
  const SuffixStoreOptions of_store{.max_answers = suffix.max_cached_requests,
                                    .max_length = suffix.max_tree_depth};
  const auto store =
      suffix.max_cached_requests > 0 ? std::make_shared<SuffixStore>(of_store, seed) : nullptr;
  return [suffix, seed, store](const DraftedChoice& choice) {
    return std::make_unique<SuffixDrafter>(suffix, seed, store, choice);
  };
}

}  // namespace sluice
