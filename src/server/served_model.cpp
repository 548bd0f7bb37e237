// Loads what is served: tokenizer and template first (they fail fast), then the engine.
#include <fmt/ranges.h>

#include <ctime>

#include "base/log.h"
#include "config/model_config.h"
#include "engine/draft_choice.h"
#include "engine/encoders/encoder_engine.h"
#include "engine/model_choice.h"
#include "engine/model_request.h"
#include "server/core/grammars.h"
#include "server/core/model_names.h"
#include "server/core/model_text.h"
#include "server/core/pooling_model.h"
#include "server/serve.h"
#include "text/chat/chat_template.h"
#include "text/parsers/reasoning_parser.h"
#include "text/parsers/stop_matcher.h"
#include "text/parsers/tool_parser.h"
#include "text/tokenizer/files/lower_case.h"

namespace sluice {
namespace {

class TextStopMatcher : public StopMatcher {
 public:
  TextStopMatcher(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<std::string>& stop)
      : tokenizer_(std::move(tokenizer)), matcher_(*tokenizer_, stop, true) {}
  bool push(std::int32_t token) override { return matcher_.push(token); }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  StopStringMatcher matcher_;
};

// The parser of an option: "none" is none, empty takes what the template's marks tell.
std::string chosen_parser(const std::string& option, const std::string& detected,
                          std::string (*canonical)(std::string_view)) {
  if (option == "none") return "";
  return option.empty() ? detected : canonical(option);
}

void log_ignored_keys(const Options& options, const Engine& engine,
                      const std::string& text_directory) {
  std::string list;
  for (const auto& [file, keys] :
       ignored_keys(options, engine.model_config().override_args, engine.model_directory(),
                    engine.generation_config(), text_directory, true))
    list += fmt::format("{}{}: {}", list.empty() ? "" : "; ", file, fmt::join(keys, ", "));
  if (!list.empty()) log_info("keys of the model's files that change nothing: {}", list);
}

}  // namespace

StopMatcherFactory stop_matcher_factory(std::shared_ptr<const Tokenizer> tokenizer) {
  return [tokenizer = std::move(tokenizer)](
             const std::vector<std::string>& stop) -> std::unique_ptr<StopMatcher> {
    return std::make_unique<TextStopMatcher>(tokenizer, stop);
  };
}

TextHooks text_hooks(std::shared_ptr<const Tokenizer> tokenizer) {
  TextHooks hooks;
  if (tokenizer != nullptr) hooks.end_tokens = tokenizer_ends(*tokenizer);
  hooks.stop_matchers = stop_matcher_factory(std::move(tokenizer));
  return hooks;
}

std::shared_ptr<const ServedModel> load_served_model(
    const Options& options, const std::function<void(const std::string&, double)>& progress,
    const DownloadObserver& download, std::shared_ptr<Trace> trace) {
  if (!trace && !options.trace.empty()) trace = std::make_shared<Trace>(options.trace);
  ModelRequest request = model_request(options);
  if (download.on_progress || download.on_note) {
    request.observer = download;
    request.observer.on_progress = [&](const DownloadProgress& so_far) {
      progress("downloading", static_cast<double>(so_far.done) /
                                  static_cast<double>(std::max<std::uint64_t>(so_far.size, 1)));
      if (download.on_progress) download.on_progress(so_far);
    };
  }
  const HubEnvironment environment = hub_environment(options);
  const ResolvedModel resolved = obtain_model(request, environment);
  const std::string& directory = resolved.directory;
  check_is_no_draft(directory);
  ModelRequest text_request = tokenizer_request(options);
  text_request.observer = request.observer;
  const bool own_text = has_own_tokenizer(options);
  std::string text_directory = own_text ? directory : local_text_directory(options);
  if (text_directory.empty()) text_directory = obtain_model(text_request, environment).directory;
  progress("reading the tokenizer", 0);
  auto model = std::make_shared<ServedModel>();
  const std::optional<EncoderConfig> encoder = find_encoder(options, directory);
  model->tokenizer = encoder && wants_lower_case(directory)
                         ? load_lower_case_tokenizer(text_directory, tokenizer_mode(options))
                         : load_tokenizer(text_directory, tokenizer_mode(options));
  const std::int64_t vocab_size =
      encoder ? encoder->vocab_size : read_model_config(options, directory).vocab_size;
  check_tokenizer_fits(options, *model->tokenizer, vocab_size, directory);
  model->chat_template = load_chat_template(text_directory, options.chat_template);
  const bool templated = model->chat_template != nullptr;
  model->reasoning_parser = chosen_parser(options.reasoning_parser,
                                          templated ? model->chat_template->reasoning_parser() : "",
                                          reasoning_parser_name);
  model->tool_parser =
      chosen_parser(options.tool_call_parser, templated ? model->chat_template->tool_parser() : "",
                    tool_parser_name);
  model->raw_tool_calls = options.tool_call_parser == "none";
  model->trace = trace;
  if (encoder) {
    model->engine = create_encoder_engine(options, *encoder, directory, progress);
  } else {
    model->engine =
        Engine::create(options, text_hooks(model->tokenizer), progress, std::move(trace));
    log_ignored_keys(options, *model->engine, text_directory);
  }
  ModelNames names = model_names(options.served_model_names, options.model, resolved);
  model->names = std::move(names.names);
  model->aliases = std::move(names.aliases);
  model->any_name = names.any;
  model->vocab_size =
      std::min<std::int64_t>(model->engine->model_config().vocab_size, model->tokenizer->size());
  model->grammars =
      std::make_shared<Grammars>(model->tokenizer, model->engine->model_config().vocab_size);
  model->pooling = std::make_shared<const PoolingModel>(load_pooling_model(
      options, directory, text_directory, *model->engine, encoder ? &*encoder : nullptr));
  model->generates = !encoder && options.runner != "pooling";
  model->created = static_cast<std::int64_t>(std::time(nullptr));
  return model;
}

}  // namespace sluice
