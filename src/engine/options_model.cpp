// Options that say what is served and in which numbers.
#include "config/quantization_names.h"
#include "engine/options_rows.h"

namespace sluice {
namespace {

using namespace option_rows;
namespace parse = option_parse;
using enum OptionType;
constexpr std::string_view kModel = "Model";

void set_tokenizer_mode(Options& o, std::string_view v) {
  o.tokenizer_mode = parse::choice(
      v, {{"auto", "auto"}, {"hf", "auto"}, {"slow", "slow"}, {"mistral", "mistral"}});
}
void set_load_format(Options& o, std::string_view v) {
  o.load_format = parse::choice(v, {{"auto", "auto"},
                                    {"safetensors", "safetensors"},
                                    {"pt", "pt"},
                                    {"gguf", "gguf"},
                                    {"dummy", "dummy"}});
}
void set_dtype(Options& o, std::string_view v) {
  o.dtype = parse::choice(v, {{"auto", "auto"},
                              {"float32", "float32"},
                              {"float", "float32"},
                              {"fp32", "float32"},
                              {"bfloat16", "bfloat16"},
                              {"bf16", "bfloat16"},
                              {"float16", "float16"},
                              {"half", "float16"},
                              {"fp16", "float16"}});
}
void set_quantization(Options& o, std::string_view v) {
  if (const QuantizationName* name = find_quantization_name(v)) {
    require(!name->methods.empty(), "'{}' is a form of other engines that is not computed; {}", v,
            name->reason);
    o.quantization = name->name;
    return;
  }
  o.quantization = parse::choice(v, {{"auto", "auto"},
                                     {"none", "none"},
                                     {"int8", "int8"},
                                     {"int4", "int4"},
                                     {"fp8", "fp8"},
                                     {"w8a8_fp8", "fp8"},
                                     {"ptpc_fp8", "fp8"}});
}
void set_quantization_group(Options& o, std::string_view v) {
  o.quantization_group_size = parse::choice(v, {{"32", "32"}, {"128", "128"}}) == "128" ? 128 : 32;
}
void set_kv_cache_dtype(Options& o, std::string_view v) {
  require(v != "fp8_e5m2",
          "'fp8_e5m2' is not implemented: two bits of mantissa double the error of fp8_e4m3, and "
          "scales make its range unnecessary; give fp8_e4m3");
  require((!v.starts_with("fp8") || v == "fp8" || v == "fp8_e4m3") && !v.starts_with("fp4") &&
              !v.starts_with("nvfp4") && v != "float16" && v != "half",
          "'{}' is a type of other engines' caches that this one does not have; fp8_e4m3 takes a "
          "byte an element, bfloat16 as much as float16",
          v);
  o.kv_cache_dtype = parse::choice(v, {{"auto", "auto"},
                                       {"float32", "float32"},
                                       {"float", "float32"},
                                       {"fp32", "float32"},
                                       {"bfloat16", "bfloat16"},
                                       {"bf16", "bfloat16"},
                                       {"int8", "int8"},
                                       {"fp8", "fp8_e4m3"},
                                       {"fp8_e4m3", "fp8_e4m3"}});
}
void set_runner(Options& o, std::string_view v) {
  o.runner = parse::choice(v, {{"auto", "auto"},
                               {"generate", "generate"},
                               {"pooling", "pooling"},
                               {"embed", "pooling"},
                               {"embedding", "pooling"},
                               {"classify", "pooling"},
                               {"score", "pooling"},
                               {"reward", "pooling"},
                               {"rerank", "pooling"}});
}
void set_is_embedding(Options& o, std::string_view v) {
  if (parse::boolean(v)) o.runner = "pooling";
}
Json is_embedding(const Options& o) {
  return o.runner == "pooling";
}
void set_pooling(Options& o, std::string_view v) {
  o.pooling = parse::choice(v, {{"auto", "auto"},
                                {"last", "last"},
                                {"LAST", "last"},
                                {"lasttoken", "last"},
                                {"last-token", "last"},
                                {"cls", "cls"},
                                {"CLS", "cls"},
                                {"mean", "mean"},
                                {"MEAN", "mean"},
                                {"max", "max"},
                                {"MAX", "max"},
                                {"mean-sqrt", "mean-sqrt"},
                                {"weighted-mean", "weighted-mean"}});
}
void set_index_cache_dtype(Options& o, std::string_view v) {
  o.index_cache_dtype = parse::choice(v, {{"auto", "auto"},
                                          {"bf16", "bfloat16"},
                                          {"bfloat16", "bfloat16"},
                                          {"fp8", "float8_e4m3fn"},
                                          {"fp8_e4m3", "float8_e4m3fn"},
                                          {"float8_e4m3fn", "float8_e4m3fn"}});
}
void set_sampling_defaults(Options& o, std::string_view v) {
  o.sampling_defaults = parse::choice(
      v, {{"model", "model"}, {"auto", "model"}, {"openai", "openai"}, {"vllm", "openai"}});
}
void set_model_impl(Options& o, std::string_view v) {
  o.model_impl = parse::choice(v, {{"auto", "auto"},
                                   {"sluice", "sluice"},
                                   {"vllm", "sluice"},
                                   {"sglang", "sluice"},
                                   {"transformers", "transformers"}});
}

}  // namespace

std::vector<OptionRow> model_option_rows() {
  return {
      {.name = "model-path",
       .aliases = "model",
       .group = kModel,
       .allowed = "a directory, a .gguf file, or ORG/NAME",
       .help = "What to serve: a directory, a .gguf file, or a model of the Hugging Face hub, as "
               "ORG/NAME (with :TAG for one of several GGUF files, and @REVISION, or not); it is "
               "downloaded where the cache has no copy.",
       .set = set_text<&Options::model>,
       .get = field<&Options::model>},
      {.name = "tokenizer-path",
       .aliases = "tokenizer",
       .group = kModel,
       .allowed = "a directory or a repo id",
       .help = "Another model's tokenizer; default: the model's own.",
       .set = set_text<&Options::tokenizer>,
       .get = field<&Options::tokenizer>},
      {.name = "tokenizer-revision",
       .group = kModel,
       .allowed = "a branch, tag or commit",
       .help = "Which revision the tokenizer is taken from; default: that of --revision, or main "
               "with --tokenizer.",
       .set = set_text<&Options::tokenizer_revision>,
       .get = field<&Options::tokenizer_revision>},
      {.name = "tokenizer-mode",
       .group = kModel,
       .allowed = "auto, slow, mistral",
       .help = "Which file is read where there are several: auto takes tokenizer.json first, slow "
               "the files of the older classes (tokenizer.model, tiktoken, vocab.txt), mistral "
               "tekken.json.",
       .set = set_tokenizer_mode,
       .get = field<&Options::tokenizer_mode>},
      {.name = "revision",
       .group = kModel,
       .allowed = "a branch, tag or commit",
       .help = "Which revision of a model of the hub.",
       .set = set_text<&Options::revision>,
       .get = field<&Options::revision>},
      {.name = "load-format",
       .group = kModel,
       .allowed = "auto, safetensors, pt, gguf, dummy",
       .help = "Where weights come from: auto takes safetensors, then PyTorch files (pt, read as "
               "data), then GGUF; dummy makes seeded random ones from config.json alone.",
       .set = set_load_format,
       .get = field<&Options::load_format>},
      {.name = "download-dir",
       .group = kModel,
       .allowed = "a directory",
       .help = "Cache of the hub's models, read and downloaded to, instead of the one that "
               "HF_HUB_CACHE or HF_HOME names.",
       .set = set_text<&Options::download_dir>,
       .get = field<&Options::download_dir>},
      {.name = "dtype",
       .group = kModel,
       .allowed = "auto, float32, bfloat16, float16",
       .help = "Type of computation; auto is the checkpoint's.",
       .set = set_dtype,
       .get = field<&Options::dtype>},
      {.name = "quantization",
       .aliases = "q",
       .group = kModel,
       .allowed = "auto, none, int8, int4, fp8, or what the checkpoint is (awq, gptq_marlin, ...)",
       .help =
           "How weights are held. auto: as the checkpoint stores them, where the device has a "
           "GEMM for that form (but float32 computation widens them); none: widened. int8, int4 "
           "and fp8 quantise any checkpoint while it is loaded; fp8, and all of them on a GPU, "
           "its linear layers. Other names of SGLang and vLLM are auto, and refused where the "
           "checkpoint is something else.",
       .set = set_quantization,
       .get = field<&Options::quantization>},
      {.name = "quantization-group-size",
       .type = kInt,
       .group = kModel,
       .allowed = "32, 128",
       .help =
           "Weights that share a scale with --quantization int8 and int4; refused without them.",
       .set = set_quantization_group,
       .get = field<&Options::quantization_group_size>},
      {.name = "kv-cache-dtype",
       .group = kModel,
       .allowed = "auto, float32, bfloat16, int8, fp8_e4m3",
       .help =
           "Type of the KV cache: auto is that of the computation; fp8_e4m3 (also: fp8; scales of "
           "the checkpoint, or 1) and, on a CPU, int8 (a scale for each token and head) halve "
           "bfloat16's memory. Latents (MLA) have a scale for 128 numbers.",
       .set = set_kv_cache_dtype,
       .get = field<&Options::kv_cache_dtype>},
      {.name = "index-cache-dtype",
       .group = kModel,
       .allowed = "auto, bf16, fp8",
       .help = "Type of the index keys of sparse attention (DeepSeek-V3.2, GLM-5): auto is that of "
               "the KV cache, or of the computation where that has 8 bits; fp8 (e4m3 and a scale "
               "for each token) halves bfloat16's memory and "
               "what a step reads of it.",
       .set = set_index_cache_dtype,
       .get = field<&Options::index_cache_dtype>},
      {.name = "context-length",
       .aliases = "max-model-len",
       .type = kInt,
       .group = kModel,
       .allowed = "0 (from config.json) to 16777216",
       .help = "Longest sequence, prompt and output together; 32k and 32K are accepted.",
       .set = set_int<&Options::context_length, 0, 16777216>,
       .get = field<&Options::context_length>},
      {.name = "check-weights",
       .type = kFlag,
       .group = kModel,
       .allowed = "true, false",
       .help = "Refuse a checkpoint that holds NaN or infinity, naming the tensor, or a PyTorch "
               "archive whose checksums are wrong; loading takes longer.",
       .set = set_flag<&Options::check_weights>,
       .get = field<&Options::check_weights>},
      {.name = "allow-longer",
       .type = kFlag,
       .group = kModel,
       .allowed = "true, false",
       .help = "Let --context-length exceed the model's max_position_embeddings; its answers may "
               "get worse there.",
       .set = set_flag<&Options::allow_longer>,
       .get = field<&Options::allow_longer>},
      {.name = "trust-remote-code",
       .type = kFlag,
       .group = kModel,
       .allowed = "true, false",
       .help = "Let the Transformers plugin run code of the model's repository; native models run "
               "none.",
       .set = set_flag<&Options::trust_remote_code>,
       .get = field<&Options::trust_remote_code>},
      {.name = "rope-by-length",
       .type = kFlag,
       .group = kModel,
       .allowed = "true, false",
       .help = "Rotations that depend on length (dynamic NTK, longrope) follow the length that "
               "each sequence has reached, as one pass of transformers does, instead of "
               "--context-length; results then depend on how a prompt is cut.",
       .set = set_flag<&Options::rope_by_length>,
       .get = field<&Options::rope_by_length>},
      {.name = "json-model-override-args",
       .aliases = "hf-overrides",
       .group = kModel,
       .allowed = "a JSON object",
       .help = "Laid over config.json.",
       .set = set_text<&Options::json_model_override_args>,
       .get = field<&Options::json_model_override_args>},
      {.name = "served-model-name",
       .type = kList,
       .group = kModel,
       .allowed = "names, comma-separated or repeated; * (any name)",
       .help = "Names of the model in the API; default: its repository's name, or the last part of "
               "its path.",
       .set = set_list<&Options::served_model_names>,
       .get = field<&Options::served_model_names>},
      {.name = "runner",
       .aliases = "task",
       .group = kModel,
       .allowed = "auto, generate, pooling (embed, classify, score, reward, rerank)",
       .help = "What the server answers: text, vectors and scores, or all that the model can.",
       .set = set_runner,
       .get = field<&Options::runner>},
      {.name = "is-embedding",
       .aliases = "embedding embeddings rerank reranking",
       .type = kFlag,
       .group = kModel,
       .allowed = "true, false",
       .help = "As --runner pooling.",
       .set = set_is_embedding,
       .get = is_embedding},
      {.name = "pooling",
       .aliases = "pooling-type",
       .group = kModel,
       .allowed = "auto, last, cls, mean, max, mean-sqrt, weighted-mean",
       .help = "How the states of a text's tokens become its vector; auto: as the model's files "
               "say.",
       .set = set_pooling,
       .get = field<&Options::pooling>},
      {.name = "chat-template",
       .aliases = "hf-chat-template-name",
       .group = kModel,
       .allowed = "a name, a file or a literal template",
       .help = "One of the model's named chat templates, or another one instead of them.",
       .set = set_text<&Options::chat_template>,
       .get = field<&Options::chat_template>},
      {.name = "sampling-defaults",
       .aliases = "generation-config",
       .group = kModel,
       .allowed = "model (auto), openai (vllm)",
       .help = "Whether generation_config.json gives the defaults of a request.",
       .set = set_sampling_defaults,
       .get = field<&Options::sampling_defaults>},
      {.name = "model-impl",
       .group = kModel,
       .allowed = "auto, sluice, transformers",
       .help = "Who runs the model: this program, or transformers through its plugin; auto: the "
               "plugin where the architecture is not built in.",
       .set = set_model_impl,
       .get = field<&Options::model_impl>},
  };
}

}  // namespace sluice
