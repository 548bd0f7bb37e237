// The verbs of the program. Each returns the exit status; what goes wrong is thrown (main.cpp
// prints it).
#pragma once

#include <span>

#include "cli/arguments.h"

namespace sluice {

int run_chat(const Arguments& arguments);
int run_serve(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_plan(const Arguments& arguments);
int run_show(const Arguments& arguments);
int run_pull(const Arguments& arguments);
int run_list(const Arguments& arguments);
int run_rm(const Arguments& arguments);
int run_verify(const Arguments& arguments);
int verify_text(const Arguments& arguments);     // verify --tokenizer, --chat-template, --snippets
int verify_parsers(const Arguments& arguments);  // verify --parsers
int verify_grammar(const Arguments& arguments);  // verify --grammar
int run_tokenize(const Arguments& arguments);
int bench_latency(const Arguments& arguments);
int bench_throughput(const Arguments& arguments);
int bench_serve(const Arguments& arguments);
int bench_roofline(const Arguments& arguments);
int bench_kernel(const Arguments& arguments);
int run_doctor(const Arguments& arguments);
int run_completions(const Arguments& arguments);
int run_man(const Arguments& arguments);
int run_version(const Arguments& arguments);

std::span<const Verb> all_verbs();

// The options with the model that the first argument names, or --model. Throws UsageError for none
// or two.
Options model_options(const Arguments& arguments);

}  // namespace sluice
