// For tests: what a device does with rounds (Batch::is_round). A step that was planned ahead of one
// becomes the step that the device computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "scheduler/scheduler.h"
#include "scheduler/testing/sim_truth.h"

namespace sluice::sim {

class Rounds {
 public:
  // The step with its rows where they belong, and the drafts of the round before.
  Step settle(const Step& given) const {
    Step step = given;
    for (std::size_t dp = 0; dp < step.dp.size(); ++dp) {
      Batch& batch = step.dp[dp];
      std::size_t row = 0;
      std::vector<std::int32_t> back(batch.items.size());
      for (std::size_t i = 0; i < batch.items.size(); ++i) {
        BatchItem& item = batch.items[i];
        const auto found = left_.find({dp, item.slot});
        if (item.is_ahead) {
          check(found != left_.end(), "slot {} is ahead of no round", item.slot);
          item.first -= back[i] = found->second.wrong;
        }
        for (std::int32_t k = 0; k < item.count; ++k) {
          std::int32_t& token = batch.token_ids[row++];
          if (token > kDraftFromSlot) continue;
          check(item.is_ahead, "a draft of the device in a step that is not ahead");
          token = found->second.drafts.at(static_cast<std::size_t>(kDraftFromSlot - token));
        }
      }
      for (LogitRow& one : batch.logit_rows)
        one.position -= back[static_cast<std::size_t>(one.item)];
    }
    return step;
  }

  // What a round leaves: drafts that were wrong, and as many new ones as it should make.
  void note(const Step& settled, const StepResult& result) {
    for (std::size_t dp = 0; dp < settled.dp.size(); ++dp) {
      const Batch& batch = settled.dp[dp];
      if (!batch.is_round) continue;
      for (std::size_t i = 0; i < batch.items.size(); ++i) {
        const BatchItem& item = batch.items[i];
        const auto tokens = static_cast<std::int32_t>(result.dp[dp].tokens_of(i).size());
        Left& left = left_[{dp, item.slot}];
        left.wrong = item.count - std::max(tokens, 1);
        const auto drafts = result.dp[dp].drafts_of(i);
        left.drafts.assign(drafts.begin(), drafts.end());
        left.drafts.resize(static_cast<std::size_t>(batch.max_drafts));
      }
    }
  }

 private:
  struct Left {
    std::int32_t wrong = 0;
    std::vector<std::int32_t> drafts;
  };
  std::map<std::pair<std::size_t, std::int32_t>, Left> left_;
};

inline void count_rounds(const Step& step, Counts& counts) {
  for (const Batch& batch : step.dp)
    counts.rounds_ahead += std::ranges::any_of(batch.items, &BatchItem::is_ahead);
}

}  // namespace sluice::sim
