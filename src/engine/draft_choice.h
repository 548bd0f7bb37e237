// Reads the draft model that the options name, and says what does not fit the target.
#pragma once

#include <memory>
#include <string>

#include "engine/serving_plan.h"

namespace sluice {

// The draft model of a method that has one: where its files are, and what they say.
struct NamedDraft {
  std::string directory;
  DraftConfig config;
};
// `weights`: they are wanted, too. Errors of read_draft().
NamedDraft find_draft(const Options& options, const SpeculationOptions& speculation,
                      const ModelConfig& target, const std::string& target_directory, bool weights);

// Error{kBadInput} where `directory`, given as the model, holds a draft of EAGLE, EAGLE3 or DFLASH.
void check_is_no_draft(const std::string& directory);

// Where the draft model is that the options name, fetched where that is a repo id; empty: they name
// none. Errors of obtain_model().
std::string obtain_draft(const Options& options);

// `target_directory` has the target's files, `plan` names the draft. Null where the method has no
// draft model. Error{kBadInput}: the directory is the target's, holds no such draft, or the draft
// has another vocabulary, width or tokenizer than the target. With several ranks, the directory of
// `plan` is that of obtain_draft().
std::shared_ptr<const DraftSource> read_draft(const Options& options, const ServingPlan& plan,
                                              const ModelConfig& target,
                                              const std::string& target_directory);

// A draft of blocks drafts no more than its block has: lowers the numbers of `plan` to that, once
// plan.runner.draft is read.
void limit_drafts(ServingPlan& plan);

}  // namespace sluice
