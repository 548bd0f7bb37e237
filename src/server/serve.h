// The verb `serve`: from options to a server that answers, and down again.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/options.h"
#include "hub/download.h"
#include "server/core/server_state.h"

namespace sluice {

// Opens HTTP first, loads the model beside it, serves until SIGTERM or SIGINT, and drains. The exit
// status: 0 drained, 130 after a second signal, 2 bad input, 3 resources missing, 4 fatal at run
// time. Errors are printed. `download` watches where the model has to be fetched; without it the
// log tells.
int serve(const Options& options, const DownloadObserver& download = {});

// Engine, tokenizer and template of one model, fetched where it is not there, ready to be served.
// Throws Error. `trace`: as for Engine::create.
std::shared_ptr<const ServedModel> load_served_model(
    const Options& options, const std::function<void(const std::string&, double)>& progress,
    const DownloadObserver& download = {}, std::shared_ptr<Trace> trace = {});

// Finds stop strings in the text of this tokenizer.
StopMatcherFactory stop_matcher_factory(std::shared_ptr<const Tokenizer> tokenizer);
// For Engine::create. Without a tokenizer there are no end tokens of it, and stop strings must not
// be given.
TextHooks text_hooks(std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace sluice
