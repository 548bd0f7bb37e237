#include "checkpoint/gguf_generation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/gguf/gguf_config.h"
#include "checkpoint/gguf/gguf_text.h"
#include "checkpoint/gguf/gguf_tokens.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kSampling = "general.sampling.";

// Tokens of fill-in-the-middle that end a generation: by key, else the first of these texts.
struct FillRow {
  std::string_view key;
  std::array<std::string_view, 5> texts;
};
constexpr FillRow kFillRows[] = {
    {"fim_pad_token_id", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"fim_rep_token_id", {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"fim_sep_token_id", {"<|file_sep|>"}}};

class EndReader {
 public:
  EndReader(const GgufFile& file, std::int64_t vocab_size, EndTokens& ends)
      : file_(file), vocab_size_(vocab_size), ends_(ends) {
    tokens_ = file.find_strings(std::string(kPrefix) + "tokens")
                  .value_or(std::vector<std::string_view>{});
  }

  void run() {
    const bool has_eos = add_key("eos_token_id");
    const std::string_view model =
        file_.find_string(std::string(kPrefix) + "model").value_or(std::string_view());
    if (!has_eos && (model == "llama" || model == "t5"))
      add(model == "llama" ? 2 : 1, "tokenizer.ggml.eos_token_id is not given");
    add_key("eot_token_id");
    add_key("eom_token_id");
    for (const FillRow& row : kFillRows)
      if (!add_key(row.key)) add_first_of(row.texts);
    const bool is_harmony = has("<|call|>") && (has("<|return|>") || has("<|flush|>"));
    const bool is_solar = has("<|calls|>") && (has("<|return|>") || has("<|flush|>"));
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view text = tokens_[i];
      if (!is_gguf_end_text(text)) continue;
      // These end a message or a text, not the answer, in models that have the others.
      if (text == "<|end|>" && (is_harmony || is_solar)) continue;
      if (text == "</s>" && has("<|tool_response>")) continue;
      add(static_cast<std::int64_t>(i), fmt::format("the text {}", text));
    }
  }

 private:
  bool has(std::string_view text) const {
    return std::find(tokens_.begin(), tokens_.end(), text) != tokens_.end();
  }

  void add(std::int64_t id, const std::string& place) {
    if (id < vocab_size_) ends_.add(id, place);
  }

  // Whether the key names a token.
  bool add_key(std::string_view name) {
    const std::string key = std::string(kPrefix) + std::string(name);
    if (!file_.has(key)) return false;
    if (const auto id = gguf_token_id(file_, name, vocab_size_)) {
      ends_.add(*id, key);
      return true;
    }
    ends_.ignore(file_.shown(key), key);
    return false;
  }

  void add_first_of(const std::array<std::string_view, 5>& texts) {
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (!tokens_[i].empty() && std::find(texts.begin(), texts.end(), tokens_[i]) != texts.end())
        return add(static_cast<std::int64_t>(i), fmt::format("the text {}", tokens_[i]));
  }

  const GgufFile& file_;
  const std::int64_t vocab_size_;
  EndTokens& ends_;
  std::vector<std::string_view> tokens_;
};

// The number of a sampling key, which may also be written as a text.
class SamplingReader {
 public:
  SamplingReader(const GgufFile& file, GenerationConfig& out) : file_(file), out_(out) {}

  void run() {
    if (const auto temp = number("temp")) out_.temperature = std::max(*temp, 0.0);
    if (const auto top_k = number("top_k"))
      out_.top_k = *top_k >= 1 ? static_cast<int>(std::min(*top_k, 1e9)) : -1;
    if (const auto top_p = number("top_p")) out_.top_p = std::clamp(*top_p, 0.0, 1.0);
    if (const auto min_p = number("min_p")) out_.min_p = std::clamp(*min_p, 0.0, 1.0);
    read_penalty();
    // A probability of 0 and a version of 0 switch these off; so nothing is lost.
    ignore_with("xtc_probability", {"xtc_probability", "xtc_threshold"});
    ignore_with("mirostat", {"mirostat", "mirostat_tau", "mirostat_eta"});
    if (file_.has(key("sequence"))) ignore("sequence");
  }

 private:
  static std::string key(std::string_view name) {
    return std::string(kSampling) + std::string(name);
  }

  void ignore(std::string_view name) { out_.ignored_keys.push_back(key(name)); }

  std::optional<double> number(std::string_view name) {
    if (!file_.has(key(name))) return std::nullopt;
    try {
      const std::optional<double> value = file_.find_number(key(name));
      if (value && std::abs(*value) <= 1e9) return value;
    } catch (const Error&) {
      const std::string text = file_.shown(key(name));
      char* end = nullptr;
      const double value = std::strtod(text.c_str(), &end);
      if (end != text.c_str() && *end == '\0' && std::abs(value) <= 1e9) return value;
    }
    ignore(name);
    return std::nullopt;
  }

  // llama.cpp looks at the last tokens only; here a penalty counts all of them.
  void read_penalty() {
    const auto last = number("penalty_last_n");
    const auto repeat = number("penalty_repeat");
    if (last && *last == 0) return;  // no token counts, so there is no penalty
    if (last && *last > 0 && repeat && *repeat != 1) ignore("penalty_last_n");
    if (!repeat) return;
    if (*repeat < 1e-3 || *repeat > 100) return ignore("penalty_repeat");
    out_.repetition_penalty = *repeat;
  }

  void ignore_with(std::string_view name, std::initializer_list<std::string_view> group) {
    const auto value = number(name);
    if (!value || *value == 0) return;
    for (const std::string_view other : group)
      if (file_.has(key(other))) ignore(other);
  }

  const GgufFile& file_;
  GenerationConfig& out_;
};

// Beginnings of keys that describe the file and name no behaviour.
constexpr std::string_view kDescriptive[] = {"general.name",        "general.author",
                                             "general.version",     "general.organization",
                                             "general.basename",    "general.finetune",
                                             "general.description", "general.quantized_by",
                                             "general.size_label",  "general.license",
                                             "general.url",         "general.doi",
                                             "general.uuid",        "general.repo_url",
                                             "general.source.",     "general.base_model.",
                                             "general.tags",        "general.languages",
                                             "general.dataset",     "general.file_type",
                                             "general.type",        "general.quantization_version",
                                             "quantize.imatrix.",   "split."};

}  // namespace

GenerationConfig gguf_generation_config(const GgufFile& file, const ModelConfig& model) {
  GenerationConfig out;
  out.ends = EndTokens(model.vocab_size);
  EndReader(file, model.vocab_size, out.ends).run();
  for (const int id : model.eos_token_ids)
    if (!out.ends.places().contains(id)) out.ends.add(id, std::string(kOverrideArgs));
  out.eos_token_ids = out.ends.ids();
  out.bos_token_id = model.bos_token_id;
  out.pad_token_id = model.pad_token_id;
  SamplingReader(file, out).run();
  return out;
}

std::vector<std::string> gguf_ignored_keys(const std::string& path, bool functional_only) {
  const GgufFile file(open_regular_file(path), path);
  try {
    const ModelConfig model = parse_model_config(dump_json(gguf_config(file)), path);
    const GenerationConfig generation = gguf_generation_config(file, model);
    read_gguf_text(file);
    std::vector<std::string> ignored = file.unread_keys();
    ignored.insert(ignored.end(), generation.ignored_keys.begin(), generation.ignored_keys.end());
    std::sort(ignored.begin(), ignored.end());
    ignored.erase(std::unique(ignored.begin(), ignored.end()), ignored.end());
    if (functional_only)
      std::erase_if(ignored, [](const std::string& key) {
        return std::ranges::any_of(
            kDescriptive, [&](std::string_view beginning) { return key.starts_with(beginning); });
      });
    return ignored;
  } catch (const Error&) {  // a file that is refused has no such list
    return {};
  }
}

}  // namespace sluice
