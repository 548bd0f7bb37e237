#include "server/core/model_text.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_text.h"
#include "checkpoint/gguf_generation.h"
#include "config/hf_quant_config.h"
#include "config/ignored_keys.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 16 << 20;

}  // namespace

bool has_tokenizer(const std::string& model) {
  return is_gguf_path(model) || !Tokenizer::file_of(model).empty();
}

std::string local_text_directory(const Options& options) {
  const std::string& name = options.tokenizer.empty() ? options.model : options.tokenizer;
  return Tokenizer::file_of(name).empty() ? std::string() : name;
}

TokenizerMode tokenizer_mode(const Options& options) {
  if (options.tokenizer_mode == "slow") return TokenizerMode::kSlow;
  return options.tokenizer_mode == "mistral" ? TokenizerMode::kMistral : TokenizerMode::kAuto;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model, TokenizerMode mode) {
  if (!is_gguf_path(model)) return Tokenizer::load(model, mode);
  const GgufText text = read_gguf_text(model);
  if (!text.sentencepiece.empty())
    return Tokenizer::from_sentencepiece(text.sentencepiece, model, text.tokenizer_config);
  return Tokenizer::from_json(text.tokenizer_json, model, text.bos_token, text.eos_token);
}

std::unique_ptr<ChatTemplate> load_chat_template(const std::string& model,
                                                 const std::string& override_) {
  if (!is_gguf_path(model)) return ChatTemplate::load(model, override_);
  const GgufText text = read_gguf_text(model);
  return ChatTemplate::load_given(text.chat_templates, text.special_tokens, override_);
}

std::vector<EndToken> tokenizer_ends(const Tokenizer& tokenizer) {
  std::vector<EndToken> ends;
  if (const auto eos = tokenizer.eos_id(); eos && !tokenizer.eos_place().empty())
    ends.push_back({*eos, tokenizer.eos_place()});
  // The end of a message that waits for a tool: Llama 3's files name it nowhere else.
  constexpr std::string_view kEndOfMessage = "<|eom_id|>";
  if (const auto id = tokenizer.token_id(kEndOfMessage);
      id && tokenizer.is_added_token(kEndOfMessage))
    ends.push_back({*id, fmt::format("the text {}", kEndOfMessage)});
  return ends;
}

std::vector<IgnoredKeys> ignored_keys(const Options& options, std::string_view override_args,
                                      const std::string& directory,
                                      const GenerationConfig& generation,
                                      const std::string& text_directory, bool functional_only) {
  std::vector<IgnoredKeys> out;
  const auto add = [&](const std::string& file, std::vector<std::string> keys) {
    if (!keys.empty()) out.push_back({file, std::move(keys)});
  };
  if (is_gguf_path(directory)) {
    add(std::filesystem::path(directory).filename().string(),
        gguf_ignored_keys(directory, functional_only));
  } else {
    const auto config = read_text_beneath(directory, "config.json", kMaxConfigBytes);
    Result<Json> json = parse_json(config.value_or(""));
    constexpr std::string_view kPrefix = "quantization_config.";
    const bool is_added = json.ok() && add_hf_quant_config(directory, override_args, *json);
    std::vector<std::string> keys =
        ignored_config_keys(json.ok() ? dump_json(*json) : "", override_args);
    const auto added = std::stable_partition(keys.begin(), keys.end(), [&](const auto& key) {
      return !is_added || !key.starts_with(kPrefix);
    });
    std::vector<std::string> of_modelopt;
    for (auto key = added; key != keys.end(); ++key)
      of_modelopt.push_back("quantization." + key->substr(kPrefix.size()));
    keys.erase(added, keys.end());
    add("config.json", std::move(keys));
    add("hf_quant_config.json", std::move(of_modelopt));
    add("generation_config.json", generation.ignored_keys);
  }
  if (!is_gguf_path(text_directory))
    for (const auto& [file, keys] :
         Tokenizer::ignored_keys(text_directory, tokenizer_mode(options)))
      add(file, keys);
  return out;
}

void check_tokenizer_fits(const Options& options, const Tokenizer& tokenizer,
                          std::int64_t vocab_size, const std::string& directory) {
  if (vocab_size >= tokenizer.size()) return;
  if (vocab_size >= tokenizer.size_in_file()) {
    log_warning(
        "the files beside the tokenizer name tokens with ids up to {}; the model knows those below "
        "{}, and a prompt with the others is refused",
        tokenizer.size() - 1, vocab_size);
    return;
  }
  require(!options.tokenizer.empty(),
          "vocab_size of {} is {}, but its tokenizer has token ids up to {}; it must be at least "
          "{}: the "
          "tokenizer belongs to another model",
          directory, vocab_size, tokenizer.size() - 1, tokenizer.size());
  log_warning("--tokenizer has token ids up to {}; the model knows those below {}",
              tokenizer.size() - 1, vocab_size);
}

}  // namespace sluice
