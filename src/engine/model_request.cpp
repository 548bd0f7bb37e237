#include "engine/model_request.h"

namespace sluice {
namespace {

ModelRequest request_for(const Options& options, const std::string& model,
                         const std::string& revision, bool weights) {
  ModelRequest request;
  request.model = model;
  // Main is what the hub takes without a word, and what follows '@' in the name may then say
  // otherwise.
  request.revision = revision == "main" ? "" : revision;
  request.load_format = options.load_format;
  request.weights = weights;
  return request;
}

}  // namespace

ModelRequest model_request(const Options& options, bool weights) {
  return request_for(options, options.model, options.revision, weights);
}

ModelRequest draft_request(const Options& options, const std::string& draft, bool weights) {
  ModelRequest request = request_for(options, draft, "", weights);
  if (options.load_format != "dummy") request.load_format = "auto";
  return request;
}

ModelRequest tokenizer_request(const Options& options) {
  if (has_own_tokenizer(options)) return model_request(options, false);
  const std::string& model = options.tokenizer.empty() ? options.model : options.tokenizer;
  ModelRequest request = request_for(options, model, options.tokenizer_revision, false);
  request.load_format = "auto";
  request.text_only = true;
  return request;
}

bool has_own_tokenizer(const Options& options) {
  return options.tokenizer.empty() && options.tokenizer_revision.empty();
}

HubEnvironment hub_environment(const Options& options) {
  return HubEnvironment::of_process(options.download_dir);
}

}  // namespace sluice
