// The methods of speculative decoding: rows of one table.
//
//   const DraftMethodRow* row = find_draft_method("ngram");
//   if (!row->refusal.empty()) ...                   // known, and why it is not served
//   scheduler.make_drafter = make_drafter({.method = row->method, .max_drafts = 7, ...});
//
// A method drafts up to max_drafts tokens of a sequence. The next step computes them all beside
// the known token, and the sampler keeps those that it would have chosen itself
// (docs/speculation.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "batch/token_drafter.h"
#include "speculative/ngram.h"
#include "speculative/suffix_drafter.h"

namespace sluice {

enum class DraftMethod : std::uint8_t {
  kNone,
  kNgram,       // prompt look-up
  kSuffix,      // what followed most often, in the request and in finished answers
  kNextn,       // the model's own layer that predicts the token after the next
  kEagle,       // a head that reads the model's last state
  kEagle3,      // a head that reads the states of several layers
  kDflash,      // layers that draft a block in one pass
  kStandalone,  // a small model with the same vocabulary
};

// What a server is told.
struct SpeculationOptions {
  DraftMethod method = DraftMethod::kNone;
  int max_drafts = 0;              // drafted tokens of a sequence in a step
  bool is_default_number = false;  // nobody asked for max_drafts: a draft may have fewer
  int topk = 1;                    // drafts behind each token; 1: drafts are chains
  int steps = 0;                   // depth of a tree
  NgramOptions ngram = {};
  SuffixOptions suffix = {};
  std::string draft_model = {};  // directory or repo id, for methods with a model of their own
  bool forced_tokens = false;    // tokens that a grammar forces are drafts, before the method's

  bool has_method() const { return method != DraftMethod::kNone; }
  bool is_on() const { return has_method() || forced_tokens; }
  // Drafts come from texts and grammars alone, on the host.
  bool reads_text() const {
    return !has_method() || method == DraftMethod::kNgram || method == DraftMethod::kSuffix;
  }
  bool has_trees() const { return topk > 1; }
  // Slots behind a step that its drafts fill (models/draft_model.h).
  int slots_behind() const {
    const int depth = has_trees() ? steps : max_drafts;
    switch (method) {
      case DraftMethod::kNone:
      case DraftMethod::kNgram:
      case DraftMethod::kSuffix:
        return 0;
      case DraftMethod::kDflash:
        return depth + 1;  // the block
      case DraftMethod::kStandalone:
        return depth;
      default:
        return depth - 1;
    }
  }
};

struct DraftMethodRow {
  std::string_view name;     // SGLang's
  std::string_view aliases;  // space-separated; vLLM's names among them
  DraftMethod method = DraftMethod::kNone;
  std::string_view refusal = {};  // why the method is not served; empty: it is
  int default_drafts = 0;
  bool has_model = false;  // loads a draft model of its own
};

std::span<const DraftMethodRow> draft_method_table();
// By name or alias, in capitals or not; null when unknown.
const DraftMethodRow* find_draft_method(std::string_view name);
const DraftMethodRow& draft_method_row(DraftMethod method);
// "NGRAM, up to 7 drafts ...", for the log.
std::string describe(const SpeculationOptions& options);
// Empty where drafts come with the results of steps.
DrafterMaker make_drafter(const SpeculationOptions& options);
// The same for measurements: it always drafts as many tokens as it may.
DrafterMaker make_synthetic_drafter(const SpeculationOptions& options);

}  // namespace sluice
