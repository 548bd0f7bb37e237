#include "cli/bench/replay.h"

#include <algorithm>

#include "base/error.h"
#include "cli/chat/prompt.h"
#include "cli/files.h"
#include "engine/speculation_choice.h"

namespace sluice {
namespace {

constexpr const char* kPrompt = "replay-prompt";
constexpr const char* kAnswer = "replay-answer";

std::vector<std::int32_t> tokens_of(const std::string& path, const Tokenizer& tokenizer,
                                    bool is_prompt) {
  std::vector<std::int32_t> ids = tokenizer.encode(
      read_text_file(path), {.add_special_tokens = is_prompt, .parse_special = false});
  require(!ids.empty(), "{} holds no text", path);
  return ids;
}

}  // namespace

Replay replay_of(const Arguments& arguments, int vocab_size, Options& options) {
  if (!arguments.has(kPrompt) && !arguments.has(kAnswer)) return {};
  if (!arguments.has(kPrompt) || !arguments.has(kAnswer))
    throw UsageError(fmt::format("--{} and --{} belong together", kPrompt, kAnswer), "give both");
  for (const char* other :
       {"batch-size", "input-len", "output-len", "speculative-synthetic-acceptance"})
    if (arguments.has(other))
      throw UsageError(fmt::format("--{} does not go with --{}", other, kAnswer),
                       fmt::format("leave --{} out: the files say it", other));
  const Result<SpeculationOptions> chosen = choose_speculation(options);
  if (chosen.ok() && !chosen.value().reads_text())
    throw UsageError(
        fmt::format("--{} does not go with drafts of a model: a device may check those without the "
                    "host, which knows the answer",
                    kAnswer),
        "allowed: NGRAM, SUFFIX, NONE");
  const TextTools tools = load_text_tools(options);
  Replay out{.prompt = tokens_of(arguments.get(kPrompt), *tools.tokenizer, true),
             .answer = tokens_of(arguments.get(kAnswer), *tools.tokenizer, false)};
  options.replayed_tokens = out.prompt;
  options.replayed_tokens.insert(options.replayed_tokens.end(), out.answer.begin(),
                                 out.answer.end());
  const std::int32_t last = std::ranges::max(options.replayed_tokens);
  require(last < vocab_size, "the files have token {}, and the model has {} tokens", last,
          vocab_size);
  return out;
}

}  // namespace sluice
