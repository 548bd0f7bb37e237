#include "cli/verbs.h"

namespace sluice {
namespace {

constexpr VerbFlag kGenerateFlags[] = {
    {"prompt", true, "TEXT", "The prompt; - reads it from standard input."},
    {"chat", false, "", "The prompt is a user's message: the model's chat template is put around it."},
    {"system", true, "TEXT", "With --chat: a system message before it."},
    {"input-ids", true, "1,2,3", "The prompt as token ids."},
    {"temperature", true, "T", "0 to 100; 0 takes the most likely token."},
    {"top-k", true, "N", "The N most likely tokens only; -1: all."},
    {"top-p", true, "P", "The most likely tokens that together have P; above 0, to 1."},
    {"min-p", true, "P", "Tokens with at least P times the largest probability; 0 to 1."},
    {"frequency-penalty", true, "X", "-2 to 2."},
    {"presence-penalty", true, "X", "-2 to 2."},
    {"repetition-penalty", true, "X", "Above 0, to 2."},
    {"max-new-tokens", true, "N", "At most N tokens; default 128."},
    {"min-new-tokens", true, "N", "At least N tokens; default 0."},
    {"stop", true, "TEXT", "Ends the output; may be given several times."},
    {"ignore-eos", false, "", "The model's end tokens do not end the output."},
    {"json", false, "", "One line: text, output_ids, meta_info."},
};

constexpr VerbFlag kVerifyFlags[] = {
    {"golden", true, "FILE", "Reference outputs: a golden.json, or the chat records of sluice-tiny."},
    {"modes", true, "LIST", "Of whole, chunk:N, cached, cached:N, mixed, decode; default whole,decode."},
    {"thread-counts", true, "LIST", "Runs every mode with each number of threads."},
    {"lengths", true, "LIST", "Only prompts of these lengths."},
    {"dump", true, "FILE", "Writes ids, log-probabilities and logits hashes of every position."},
    {"tokenizer", true, "DIR", "Compares the tokenizer in DIR with --oracle FILE."},
    {"chat-template", true, "DIR", "Compares the chat template in DIR with --oracle FILE."},
    {"oracle", true, "FILE", "Reference outputs of a tokenizer or template."},
    {"snippets", true, "FILE", "Compares the template interpreter with recorded one-line templates."},
};

constexpr VerbFlag kTokenizeFlags[] = {
    {"prompt", true, "TEXT", "The text; - reads it from standard input."},
    {"chat", false, "", "The text is a user's message: prints what the chat template makes of it."},
    {"system", true, "TEXT", "With --chat: a system message before it."},
    {"no-special", false, "", "Without the tokens that the tokenizer puts around a text."},
    {"json", false, "", "One line: ids, pieces, text."},
};

constexpr VerbFlag kBenchFlags[] = {
    {"batch-size", true, "N", "Requests at once; default 1."},
    {"input-len", true, "N", "Prompt tokens of each; default 1024."},
    {"output-len", true, "N", "Generated tokens of each; default 16."},
    {"json", false, "", "One line with the figures."},
};

constexpr VerbFlag kVersionFlags[] = {{"json", false, "", "One line with what was built."}};

constexpr Verb kVerbs[] = {
    {"serve",
     "[MODEL] [--model MODEL] [--host H] [--port P] [flags]",
     "Serves a model over HTTP.",
     {},
     1,
     run_serve},
    {"generate", "--model MODEL (--prompt TEXT [--chat] | --input-ids 1,2,3) [flags]",
     "Completes one prompt.", kGenerateFlags, 0, run_generate},
    {"verify", "--model DIR --golden FILE [--modes LIST] [--dump FILE] [flags]",
     "Compares with reference outputs; exits with 1 when they differ.", kVerifyFlags, 0, run_verify},
    {"tokenize", "--model MODEL (--prompt TEXT | TEXT) [--chat] [flags]",
     "Prints token ids and pieces of a text.", kTokenizeFlags, 1, run_tokenize},
    {"bench", "latency --model MODEL [--batch-size N] [--input-len N] [--output-len N] [flags]",
     "Measures prefill and decode of one batch.", kBenchFlags, 1, run_bench},
    {"version", "[--json]", "Prints what this program is.", kVersionFlags, 0, run_version},
};

}  // namespace

std::span<const Verb> all_verbs() {
  return kVerbs;
}

void require_model(const Arguments& arguments) {
  if (arguments.options.model.empty())
    throw UsageError("no model was named",
                     "give --model a directory, or a repo id in the Hugging Face cache");
}

}  // namespace sluice
