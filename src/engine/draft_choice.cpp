#include "engine/draft_choice.h"

#include <filesystem>

#include "base/error.h"
#include "base/error_context.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/load_config.h"
#include "engine/model_request.h"
#include "engine/rank_choice.h"
#include "engine/speculation_choice.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOption = "--speculative-draft-model-path";
// Of config.json and tokenizer.json.
constexpr std::uint64_t kMaxTextBytes = 256u << 20;

// Empty where there is no such file.
std::string text_of(const std::string& directory, std::string_view name) {
  return read_text_beneath(directory, name, kMaxTextBytes).value_or("");
}

// The tokens and their numbers, of which a draft's must be equal.
Json vocabulary_of(const std::string& text, const std::string& what) {
  const Json file = parse_json_or_throw(text, what);
  require(file.is_object(), "{}: it is no JSON object", what);
  Json out;
  const auto model = file.find("model"), added = file.find("added_tokens");
  if (model != file.end() && model->is_object() && model->contains("vocab"))
    out.push_back((*model)["vocab"]);
  if (added == file.end()) return out;
  require(added->is_array(), "{}: added_tokens is no list", what);
  for (const Json& token : *added) {
    require(token.is_object() && token.contains("id") && token.contains("content"),
            "{}: an entry of added_tokens is no object with id and content", what);
    out.push_back({token["id"], token["content"]});
  }
  return out;
}

void check_tokenizer(const std::string& draft, const std::string& target) {
  const std::string one = text_of(draft, "tokenizer.json"),
                    other = text_of(target, "tokenizer.json");
  if (one.empty() || other.empty() || one == other) return;
  require(
      vocabulary_of(one, draft + "/tokenizer.json") ==
          vocabulary_of(other, target + "/tokenizer.json"),
      "{}: the tokenizer.json of {} has other tokens than that of the target; give a draft that "
      "shares the target's tokenizer",
      kOption, draft);
}

// The method that a draft's configuration is made for. A text of an ordinary model is one of
// STANDALONE; no text, too.
DraftMethod method_of(const std::string& text) {
  if (text.empty()) return DraftMethod::kStandalone;
  if (is_eagle3_config(text)) return DraftMethod::kEagle3;
  if (is_dflash_config(text)) return DraftMethod::kDflash;
  return is_eagle_config(text) ? DraftMethod::kEagle : DraftMethod::kStandalone;
}

// A head of EAGLE may have the architecture of an ordinary model.
void check_method(const std::string& directory, DraftMethod wanted, DraftMethod found) {
  if (wanted == found || (wanted == DraftMethod::kEagle && found == DraftMethod::kStandalone))
    return;
  const std::string_view does = draft_method_row(found).name;
  if (found == DraftMethod::kStandalone)
    fail(ErrorKind::kBadInput,
         "{}: {} holds no draft of {}; an ordinary model drafts with --speculative-algorithm {}",
         kOption, directory, draft_method_row(wanted).name, does);
  fail(ErrorKind::kBadInput, "{}: {} drafts with --speculative-algorithm {}, not with {}", kOption,
       directory, does, draft_method_row(wanted).name);
}

DraftConfig config_of(const std::string& directory, DraftMethod method, const ModelConfig& target) {
  const std::string text = text_of(directory, "config.json");
  const std::string config = directory + "/config.json";
  DraftConfig out;
  check_method(directory, method, saying(directory, [&] { return method_of(text); }));
  if (method == DraftMethod::kEagle) {
    out.eagle = parse_eagle_config(text, config, target);
    return out;
  }
  if (method == DraftMethod::kDflash) {
    out.dflash = parse_dflash_config(text, config, target);
    return out;
  }
  if (method == DraftMethod::kEagle3) {
    out.eagle3 = parse_eagle3_config(text, config, target);
    return out;
  }
  out.model = load_model_config(directory);
  const ModelConfig& draft = *out.model;
  require(draft.vocab_size == target.vocab_size,
          "{}: the draft's vocab_size is {}, and that of the target {}; they must be equal",
          kOption, draft.vocab_size, target.vocab_size);
  require(!draft.recurrent && !draft.fallback,
          "{}: {} has recurrent layers or no class of its own, and cannot go back behind a wrong "
          "draft; give another draft",
          kOption, draft.architecture);
  return out;
}

}  // namespace

void check_is_no_draft(const std::string& directory) {
  std::error_code none;
  if (!fs::is_directory(directory, none)) return;
  DraftMethod method = DraftMethod::kStandalone;
  try {
    method = method_of(text_of(directory, "config.json"));
  } catch (const Error&) {  // who reads it as a model's says what is wrong
  }
  if (method == DraftMethod::kStandalone) return;
  const std::string_view name = draft_method_row(method).name;
  fail(ErrorKind::kBadInput,
       "{} holds a draft of {}, which drafts for another model; give that model, with "
       "--speculative-algorithm {} {} {}",
       directory, name, name, kOption, directory);
}

std::string obtain_draft(const Options& options) {
  const Result<SpeculationOptions> chosen = choose_speculation(options);
  if (!chosen.ok() || chosen.value().draft_model.empty()) return "";
  return saying(kOption, [&] {
    return obtain_model(draft_request(options, chosen.value().draft_model),
                        hub_environment(options))
        .directory;
  });
}

NamedDraft find_draft(const Options& options, const SpeculationOptions& speculation,
                      const ModelConfig& target, const std::string& target_directory,
                      bool weights) {
  NamedDraft out;
  out.directory = saying(kOption, [&] {
    return obtain_model(draft_request(options, speculation.draft_model, weights),
                        hub_environment(options))
        .directory;
  });
  std::error_code none;
  require(!fs::equivalent(out.directory, target_directory, none),
          "{}: {} is the target itself; give a {}", kOption, out.directory,
          speculation.method == DraftMethod::kStandalone
              ? "smaller model"
              : fmt::format("draft of {} that was trained for it",
                            draft_method_row(speculation.method).name));
  saying(kOption, [&] {
    out.config = config_of(out.directory, speculation.method, target);
    check_tokenizer(out.directory, target_directory);
  });
  if (out.config.dflash) {
    const int most = out.config.dflash->block_size - 1;
    require(speculation.is_default_number || speculation.max_drafts <= most,
            "{}: the block_size of {} is {}, which has {} drafts, and {} were asked for; give "
            "--speculative-num-draft-tokens {} at most",
            kOption, out.directory, most + 1, most, speculation.max_drafts, most + 1);
  }
  return out;
}

void limit_drafts(ServingPlan& plan) {
  const DraftSource* draft = plan.runner.draft.get();
  if (draft == nullptr || !draft->config.dflash) return;
  const int most = draft->config.dflash->block_size - 1;
  if (plan.speculation.max_drafts <= most) return;
  plan.speculation.max_drafts = plan.runner.max_drafts = plan.scheduler.max_drafts = most;
  plan.scheduler.draft_slots = plan.speculation.slots_behind();
}

std::shared_ptr<const DraftSource> read_draft(const Options& options, const ServingPlan& plan,
                                              const ModelConfig& target,
                                              const std::string& target_directory) {
  if (plan.speculation.draft_model.empty()) return nullptr;
  NamedDraft draft =
      find_draft(options, plan.speculation, target, target_directory, !plan.loading.dummy);
  const ModelConfig& layers = draft.config.eagle3   ? draft.config.eagle3->layers
                              : draft.config.eagle  ? *draft.config.eagle
                              : draft.config.dflash ? draft.config.dflash->layers
                                                    : *draft.config.model;
  const std::optional<DType>& stored = plan.numerics().kv_stored;
  require(
      !layers.mla || plan.runner.placement.device.kind == DeviceKind::kCpu ||
          (stored != DType::kI8 && stored != DType::kF8E4M3),
      "{}: {} caches one latent for all heads, and --kv-cache-dtype {} needs keys and values of "
      "heads on a GPU; give auto, bfloat16 or float32, or another draft",
      kOption, draft.directory, options.kv_cache_dtype);
  const std::string name = fmt::format("{}: {}", kOption, draft.directory);
  WeightSource weights = saying(name, [&] {
    WeightSource out =
        plan.loading.dummy
            ? WeightSource::dummy(plan.loading.seed + 1, layers.initializer_range)
            : WeightSource::checkpoint(draft.directory, {.quantization = layers.quantization});
    if (plan.loading.check_weights) {
      out.check_storages();
      out.check_finite();
    }
    return out;
  });
  const std::string unshared = sharing_refusal(layers, plan.num_sharers());
  if (!unshared.empty())
    log_info("the draft is whole in each of {} ranks: {}", plan.num_sharers(), unshared);
  return std::make_shared<const DraftSource>(
      DraftSource{std::move(draft.config), std::move(weights), !unshared.empty(), name});
}

}  // namespace sluice
