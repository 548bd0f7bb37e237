// Options of speculative decoding.
#include <fmt/ranges.h>

#include "engine/options_rows.h"
#include "engine/speculation_choice.h"

namespace sluice {
namespace {

using namespace option_rows;
using enum OptionType;
constexpr std::string_view kSpeculation = "Speculation";

void set_algorithm(Options& o, std::string_view v) {
  o.speculative_algorithm = served_draft_method(v).name;
}
void set_config(Options& o, std::string_view v) {
  (void)read_speculative_config(v);  // says what is wrong with it
  o.speculative_config = std::string(v);
}

}  // namespace

std::vector<OptionRow> speculative_option_rows() {
  return {
      {.name = "speculative-algorithm",
       .group = kSpeculation,
       .allowed = "NONE, NGRAM, SUFFIX, NEXTN, EAGLE, EAGLE3, DFLASH, STANDALONE",
       .help = "Drafts tokens that steps check together; the output stays the same "
               "(docs/speculation.md). NGRAM looks up what followed the last words before, SUFFIX "
               "what followed most often, in finished answers too; NEXTN "
               "asks the model's own draft layer, EAGLE and EAGLE3 a head that reads the model's "
               "states, DFLASH layers that draft a block from them, STANDALONE a small model.",
       .set = set_algorithm,
       .get = field<&Options::speculative_algorithm>},
      {.name = "speculative-draft-model-path",
       .aliases = "speculative-draft-model speculative-draft",
       .group = kSpeculation,
       .allowed = "a directory or repo id",
       .help = "EAGLE, EAGLE3, DFLASH and STANDALONE: the draft model.",
       .set = set_text<&Options::speculative_draft_model_path>,
       .get = field<&Options::speculative_draft_model_path>},
      {.name = "speculative-num-draft-tokens",
       .type = kInt,
       .group = kSpeculation,
       .allowed = "0 (by the algorithm), or 2 to 64",
       .help = "Tokens of a sequence that a step computes: one that is known, the others drafted.",
       .set = set_int<&Options::speculative_num_draft_tokens, 0, kMaxDraftTokens>,
       .get = field<&Options::speculative_num_draft_tokens>},
      {.name = "speculative-num-steps",
       .type = kInt,
       .group = kSpeculation,
       .allowed = "0 (by the algorithm) to 63",
       .help = "Drafted tokens behind each other. Of chains: one less than "
               "--speculative-num-draft-tokens, which need not be given besides.",
       .set = set_int<&Options::speculative_num_steps, 0, kMaxDraftTokens - 1>,
       .get = field<&Options::speculative_num_steps>},
      {.name = "speculative-eagle-topk",
       .type = kInt,
       .group = kSpeculation,
       .allowed = "1 to 20",
       .help = "NEXTN, EAGLE, EAGLE3 and STANDALONE: so many drafts behind each token; 1 makes "
               "chains, more make trees, of which a step takes the best nodes that pay.",
       .set = set_int<&Options::speculative_eagle_topk, 1, kMaxTopk>,
       .get = field<&Options::speculative_eagle_topk>},
      {.name = "speculative-adaptive",
       .type = kFlag,
       .group = kSpeculation,
       .allowed = "true, false",
       .help = "Each step has as many drafts as pay, up to the number above, none included. What "
               "they cost is measured at the start, what they bring is counted. On unless "
               "--speculative-adaptive=false, which takes as many as there are.",
       .set = set_flag<&Options::speculative_adaptive>,
       .get = field<&Options::speculative_adaptive>},
      {.name = "draft-forced-tokens",
       .type = kFlag,
       .group = kSpeculation,
       .allowed = "true, false",
       .help = "Drafts the tokens that a request's grammar leaves little choice about, such as the "
               "keys of a schema; needs no other option, and comes before the drafts of one.",
       .set = set_flag<&Options::draft_forced_tokens>,
       .get = field<&Options::draft_forced_tokens>},
      {.name = "speculative-ngram-min-match-window-size",
       .type = kInt,
       .group = kSpeculation,
       .allowed = "1 to 64",
       .help = "NGRAM: so many last tokens must have stood in the text before.",
       .set = set_int<&Options::speculative_ngram_min_match, 1, kMaxNgram>,
       .get = field<&Options::speculative_ngram_min_match>},
      {.name = "speculative-ngram-max-match-window-size",
       .type = kInt,
       .group = kSpeculation,
       .allowed = "1 to 64",
       .help = "NGRAM: longer matches are not told apart.",
       .set = set_int<&Options::speculative_ngram_max_match, 1, kMaxNgram>,
       .get = field<&Options::speculative_ngram_max_match>},
      {.name = "speculative-config",
       .group = kSpeculation,
       .allowed = "vLLM's JSON with method, model, num_speculative_tokens, prompt_lookup_min, "
                  "prompt_lookup_max and suffix_decoding_...",
       .help = "The same as one JSON object, instead of the options above; and of SUFFIX "
               "suffix_decoding_max_tree_depth, suffix_decoding_max_cached_requests, "
               "suffix_decoding_max_spec_factor and suffix_decoding_min_token_prob: "
               R"({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 5}.)",
       .set = set_config,
       .get = field<&Options::speculative_config>},
  };
}

}  // namespace sluice
