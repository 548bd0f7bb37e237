#include "cli/verbs.h"

#include "cli/verb_flags.h"

namespace sluice {
namespace {

namespace flags = verb_flags;

constexpr Verb kVerbs[] = {
    {"run", "MODEL [PROMPT] [flags]", "Chats with a model in the terminal, or answers one prompt.",
     flags::kRun, 2, run_chat, true, "reasoning-parser"},
    {"serve", "[MODEL] [--model MODEL] [--host H] [--port P] [--config FILE] [flags]",
     "Serves a model over HTTP.", flags::kServe, 1, run_serve, true, "*"},
    {"generate", "MODEL (--prompt TEXT [--chat] | --input-ids 1,2,3) [flags]",
     "Completes one prompt.", flags::kGenerate, 1, run_generate},
    {"plan", "MODEL [--memory BYTES | --gpus 8xH200 [--concurrency N]] [--json] [flags]",
     "Says what a model needs, what fits, and how to start it.", flags::kPlan, 1, run_plan, true,
     "*"},
    {"show", "MODEL [--json] [flags]", "Says what is understood of a model's files.", flags::kShow,
     1, run_show, true, "reasoning-parser tool-call-parser"},
    {"pull",
     "ORG/NAME [--revision R] [--load-format F] [--include GLOB] [--exclude GLOB] [--download-dir "
     "D]",
     "Downloads a model from the Hugging Face hub, or brings it up to date.", flags::kPull, 1,
     run_pull, false},
    {"list", "[--json] [--download-dir D]", "Lists the models of the Hugging Face cache.",
     flags::kList, 0, run_list, false},
    {"rm", "ORG/NAME [--revision R] [--yes] [--download-dir D]",
     "Removes a model from the Hugging Face cache.", flags::kRm, 1, run_rm, false},
    {"bench latency", "MODEL [--batch-size LIST] [--input-len LIST] [--output-len N] [flags]",
     "Measures prefill and decode of one batch against the machine's limits.", flags::kBenchLatency,
     1, bench_latency},
    {"bench throughput", "MODEL [--num-prompts N] [flags]",
     "Measures many prompts through the engine.", flags::kBenchThroughput, 1, bench_throughput},
    {"bench serve", "[--backend NAME] [--base-url URL] [flags]",
     "Loads a server and measures its answers.", flags::kBenchServe, 0, bench_serve, false},
    {"bench roofline", "[--threads N] [--json]",
     "Measures read bandwidth and peak arithmetic of this machine.", flags::kBenchRoofline, 0,
     bench_roofline, false},
    {"bench kernel", "[MODEL] [--rows LIST] [--json] [flags]",
     "Measures kernels alone against this machine's limits.", flags::kBenchKernel, 1, bench_kernel},
    {"doctor", "[MODEL] [--json] [flags]",
     "Checks this machine, and its kernels against plain loops; exits with 1 when something is "
     "wrong.",
     flags::kDoctor, 1, run_doctor},
    {"tokenize", "MODEL (--prompt TEXT | TEXT) [--chat] [flags]",
     "Prints token ids and pieces of a text.", flags::kTokenize, 2, run_tokenize},
    {"verify", "DIR --golden FILE [--modes LIST] [--dump FILE] [flags]",
     "Compares with reference outputs; exits with 1 when they differ.", flags::kVerify, 1,
     run_verify},
    {"completion",
     "bash|zsh|fish",
     "Prints completions for a shell.",
     {},
     1,
     run_completions,
     false},
    {"man", "", "Prints the manual page.", {}, 0, run_man, false},
    {"version", "[--json]", "Prints what this program is.", flags::kVersion, 0, run_version, false},
};

}  // namespace

std::span<const Verb> all_verbs() {
  return kVerbs;
}

Options model_options(const Arguments& arguments) {
  Options options = arguments.options;
  if (!arguments.positional.empty()) {
    if (arguments.was_given("model-path") && options.model != arguments.positional[0])
      throw UsageError("two models were named",
                       "give the model once, as an argument or as --model");
    options.model = arguments.positional[0];
  }
  if (options.model.empty())
    throw UsageError(
        "no model was named",
        "give a directory, or the name of a model of the Hugging Face hub, as ORG/NAME");
  return options;
}

}  // namespace sluice
