// What SGLang's `meta_info` says of a choice whose tokens were drafted.
#pragma once

#include "base/json.h"
#include "batch/event.h"

namespace sluice {

// Adds spec_verify_ct, the accepted and drafted tokens, and both ratios; nothing without
// speculation.
void add_draft_counts(const DraftCounts& drafts, int completion_tokens, Json& meta_info);

}  // namespace sluice
