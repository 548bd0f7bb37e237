// `sluice generate`: one prompt, one answer.
#include <chrono>
#include <cstdio>
#include <random>

#include "base/json.h"
#include "base/log.h"
#include "cli/chat/engine_call.h"
#include "cli/chat/grammar_flags.h"
#include "cli/chat/prompt.h"
#include "cli/download_bars.h"
#include "cli/files.h"
#include "cli/verbs.h"
#include "engine/options_parse.h"
#include "server/core/grammars.h"
#include "server/core/model_text.h"
#include "server/serve.h"
#include "speculative/draft_counts.h"
#include "text/parsers/stop_matcher.h"
#include "text/tokenizer/detokenizer.h"

namespace sluice {
namespace {

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::string> parts;
  std::vector<std::int32_t> ids;
  try {
    option_parse::append_list(parts, text);
    for (const std::string& part : parts)
      ids.push_back(static_cast<std::int32_t>(option_parse::integer(part, 0, INT32_MAX)));
  } catch (const Error& error) {
    throw UsageError(fmt::format("--input-ids: {}", error.message()), "give ids like 1,2,3");
  }
  return ids;
}

std::vector<std::string> stop_strings(const Arguments& arguments) {
  const auto it = arguments.values.find("stop");
  if (it == arguments.values.end()) return {};
  for (const std::string& stop : it->second)
    if (stop.empty()) throw UsageError("--stop is empty", "give the text that ends the output");
  return it->second;
}

int min_new_tokens(const Arguments& arguments) {
  return static_cast<int>(arguments.get_int("min-new-tokens", 0, 0, INT32_MAX));
}

int max_new_tokens(const Arguments& arguments) {
  return static_cast<int>(arguments.get_int("max-new-tokens", 128, 1, INT32_MAX));
}

// The command line's word, else the model's (generation_config.json), else what /generate takes:
// the ranges are those of a request.
SamplingParams sampling_params(const Arguments& arguments, const GenerationConfig& model) {
  const bool use_model = arguments.options.sampling_defaults == "model";
  const auto pick = [&](const char* name, const std::optional<double>& of_model, double otherwise,
                        double low, double high) {
    return static_cast<float>(arguments.get_number(
        name, use_model ? of_model.value_or(otherwise) : otherwise, low, high));
  };
  static const std::optional<double> kNone;  // a model says nothing of these
  SamplingParams params;
  const double default_temperature = use_model && model.do_sample == false ? 0.0 : 1.0;
  params.temperature = pick("temperature", model.temperature, default_temperature, 0, 100);
  params.top_p = pick("top-p", model.top_p, 1, 1e-9, 1);
  params.min_p = pick("min-p", model.min_p, 0, 0, 1);
  params.frequency_penalty = pick("frequency-penalty", kNone, 0, -2, 2);
  params.presence_penalty = pick("presence-penalty", kNone, 0, -2, 2);
  params.repetition_penalty = pick("repetition-penalty", model.repetition_penalty, 1, 1e-9, 2);
  const int model_top_k = use_model && model.top_k.value_or(0) > 0 ? *model.top_k : -1;
  params.top_k = static_cast<int>(arguments.get_int("top-k", model_top_k, -1, INT32_MAX));
  if (params.top_k == 0) params.top_k = -1;
  params.min_new_tokens = min_new_tokens(arguments);
  params.seed = fixed_seed(arguments.options).value_or(std::random_device{}());
  if (!arguments.has("ignore-eos"))
    params.stop_token_ids.assign(model.eos_token_ids.begin(), model.eos_token_ids.end());
  return params;
}

// What can be refused before the model is read.
void check_flags(const Arguments& arguments) {
  if (arguments.has("prompt") == arguments.has("input-ids"))
    throw UsageError("no prompt, or two of them", "give either --prompt TEXT or --input-ids 1,2,3");
  if (arguments.has("chat") && !arguments.has("prompt"))
    throw UsageError("--chat needs a text", "give --prompt TEXT");
  check_chat_flags(arguments);
  if (min_new_tokens(arguments) > max_new_tokens(arguments))
    throw UsageError(fmt::format("--min-new-tokens asks for at least {} tokens, but at most {} may "
                                 "come",
                                 min_new_tokens(arguments), max_new_tokens(arguments)),
                     "give a smaller --min-new-tokens, or a larger --max-new-tokens");
}

// Tokens to text as it may be shown: whole characters, cut at a stop string.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop)
      : detokenizer_(tokenizer, true), filter_(std::move(stop), false) {}

  std::string push(const std::vector<std::int32_t>& tokens) {
    std::string out;
    for (std::int32_t token : tokens)
      if (!filter_.stopped()) out += filter_.push(detokenizer_.push(token));
    return out;
  }
  std::string finish() {
    if (filter_.stopped()) return "";
    std::string out = filter_.push(detokenizer_.finish_answer());
    if (!filter_.stopped()) out += filter_.flush();
    return out;
  }
  std::string_view matched() const { return filter_.matched(); }

 private:
  Detokenizer detokenizer_;
  StopFilter filter_;
};

// finish_reason as SGLang's /generate replies.
Json finish_json(const Completion& done, std::string_view matched_text, std::size_t num_tokens) {
  if (done.finish == FinishReason::kLength) return {{"type", "length"}, {"length", num_tokens}};
  Json json = {{"type", done.finish == FinishReason::kAbort ? "abort" : "stop"}};
  if (done.matched_stop_string) json["matched"] = matched_text;
  if (!done.matched_stop_string && done.matched_token >= 0) json["matched"] = done.matched_token;
  return json;
}

}  // namespace

int run_generate(const Arguments& arguments) {
  const Options options = model_options(arguments);
  check_flags(arguments);
  if (!arguments.log_level_was_given()) set_log_level(LogLevel::kWarning);
  const std::vector<std::string> stop = stop_strings(arguments);
  const std::optional<GrammarField> grammar = grammar_of(arguments);
  Request request;
  if (arguments.has("input-ids")) request.prompt_ids = parse_ids(arguments.get("input-ids"));

  obtain_model(options);
  // With ids alone a checkpoint without a tokenizer will do; there is then no text to print.
  const TextTools tools =
      load_text_tools(options, !arguments.has("prompt") && stop.empty() && !grammar);
  const std::unique_ptr<Engine> engine = Engine::create(options, text_hooks(tools.tokenizer));
  if (tools.tokenizer != nullptr)
    check_tokenizer_fits(options, *tools.tokenizer, engine->model_config().vocab_size,
                         options.model);
  if (arguments.has("prompt")) {
    std::string text = arguments.get("prompt");
    if (text == "-") text = read_text_file(text);
    EncodeOptions encode;
    if (arguments.has("chat")) {
      text = render_chat(tools, arguments.get("system"), text);
      encode.add_special_tokens = false;  // the template holds them
    }
    request.prompt_ids = tools.tokenizer->encode(text, encode);
    require(!request.prompt_ids.empty(), "the prompt has no tokens");
  }
  request.params = sampling_params(arguments, engine->generation_config());
  request.max_new_tokens = max_new_tokens(arguments);
  request.ignore_eos = arguments.has("ignore-eos");
  request.stop = stop;
  if (grammar) {
    Grammars grammars(tools.tokenizer, engine->model_config().vocab_size);
    Result<ConstraintMaker> maker =
        grammars.maker(grammar->source, request.ignore_eos ? std::vector<std::int32_t>{}
                                                           : request.params.stop_token_ids);
    require(maker.ok(), "{}: {}", grammar->param, maker.ok() ? "" : maker.fault().message);
    request.make_constraint = *maker;
  }

  const bool json = arguments.has("json");
  std::optional<TextStream> stream;
  if (tools.tokenizer != nullptr) stream.emplace(*tools.tokenizer, stop);
  std::string text;
  bool is_begun = !arguments.has("chat");  // a template's empty thought leaves line ends behind
  const auto show = [&](std::string_view piece) {
    text += piece;
    while (!is_begun && piece.starts_with('\n')) piece.remove_prefix(1);
    if (json || piece.empty()) return;
    is_begun = true;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  const auto start = std::chrono::steady_clock::now();
  PendingCompletion pending(*engine, std::move(request),
                            [&](const std::vector<std::int32_t>& tokens) {
                              if (stream) show(stream->push(tokens));
                            });
  const Completion done = pending.wait();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (done.finish == FinishReason::kError)
    fail(ErrorKind::kFatal, "the request failed: {} ({})", done.error.message, done.error.code);
  if (stream) show(stream->finish());

  if (!json) {
    if (!stream) fmt::print("{}", fmt::join(done.tokens, ","));
    fmt::print("\n");
    return 0;
  }
  Json meta = {
      {"id", "0"},
      {"finish_reason", finish_json(done, stream ? stream->matched() : "", done.tokens.size())},
      {"prompt_tokens", done.prompt_tokens},
      {"completion_tokens", done.tokens.size()},
      {"cached_tokens", done.cached_tokens},
      {"e2e_latency", elapsed.count()}};
  add_draft_counts(done.drafts, static_cast<int>(done.tokens.size()), meta);
  fmt::print("{}\n", dump_json({{"text", text}, {"output_ids", done.tokens}, {"meta_info", meta}}));
  return 0;
}

}  // namespace sluice
