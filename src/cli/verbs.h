// The verbs of the program. Each returns the exit status; what goes wrong is thrown (main.cpp prints it).
#pragma once

#include <span>

#include "cli/arguments.h"

namespace sluice {

int run_serve(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_verify(const Arguments& arguments);
int verify_text(const Arguments& arguments);  // verify --tokenizer, --chat-template, --snippets
int run_tokenize(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_version(const Arguments& arguments);

std::span<const Verb> all_verbs();

// Throws UsageError when no model was named.
void require_model(const Arguments& arguments);

}  // namespace sluice
