#include "speculative/draft_counts.h"

namespace sluice {

void add_draft_counts(const DraftCounts& drafts, int completion_tokens, Json& meta_info) {
  if (!drafts.is_on) return;
  const auto ratio = [](int part, int whole) {
    return whole > 0 ? static_cast<double>(part) / whole : 0.0;
  };
  meta_info["spec_verify_ct"] = drafts.verifications;
  meta_info["spec_accept_token_num"] = drafts.accepted;
  meta_info["spec_draft_token_num"] = drafts.drafted;
  meta_info["spec_accept_rate"] = ratio(drafts.accepted, drafts.drafted);
  meta_info["spec_accept_length"] = ratio(completion_tokens, drafts.verifications);
}

}  // namespace sluice
