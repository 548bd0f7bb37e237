// Options of other engines that change nothing here or are refused, each with its reason.
#include "engine/options_rows.h"

namespace sluice {
namespace {

using enum OptionType;
using enum OptionEffect;

OptionRow ignored(std::string_view name, std::string_view aliases, OptionType type,
                  std::string_view default_text, std::string_view why) {
  return {.name = name,
          .aliases = aliases,
          .type = type,
          .effect = kIgnored,
          .group = "Accepted without effect",
          .default_text = std::string(default_text),
          .help = why};
}

// Names that mean what happens here anyway; another value would mean something else, and is
// refused.
OptionRow stands_for(std::string_view name, std::string_view default_text, std::string_view allowed,
                     std::string_view why) {
  return {.name = name,
          .effect = kIgnored,
          .group = "Accepted without effect",
          .default_text = std::string(default_text),
          .allowed = allowed,
          .help = why};
}

OptionRow refused(std::string_view name, std::string_view aliases, OptionType type,
                  std::string_view default_text, std::string_view why) {
  return {.name = name,
          .aliases = aliases,
          .type = type,
          .effect = kRefused,
          .group = "Known and refused",
          .default_text = std::string(default_text),
          .help = why};
}

}  // namespace

std::vector<OptionRow> foreign_option_rows() {
  return {
      ignored("enable-metrics", "", kFlag, "true", "metrics are always served"),
      ignored("enable-cache-report", "enable-prompt-tokens-details", kFlag, "true",
              "cached tokens are always reported"),
      ignored("enable-mixed-chunk", "enable-chunked-prefill", kFlag, "true",
              "prefill chunks and decode rows always share steps"),
      ignored("enable-prefix-caching", "", kFlag, "true",
              "the prefix cache is on unless --disable-radix-cache is given"),
      ignored("enable-auto-tool-choice", "", kFlag, "true",
              "tool calls are always parsed when a request has tools"),
      stands_for("sampling-backend", "auto", "auto, flashinfer, pytorch",
                 "Sluice has one sampler of its own"),
      stands_for("grammar-backend", "auto",
                 "auto, xgrammar, llguidance, guidance, outlines, lm-format-enforcer",
                 "Sluice has one matcher of its own, which answers for all of them"),
      ignored("skip-server-warmup", "", kFlag, "false", "the warm-up always runs"),
      stands_for("gpu-id-step", "1", "1", "ranks take GPUs one after another, from --base-gpu-id"),
      stands_for("moe-runner-backend", "auto",
                 "auto, triton, triton_kernel, deep_gemm, cutlass, flashinfer_cutlass, "
                 "flashinfer_trtllm",
                 "Sluice has expert kernels of its own"),
      ignored("flashinfer-mla-disable-ragged", "", kFlag, "false", "FlashInfer is not used"),
      ignored("disable-chunked-prefix-cache", "", kFlag, "false",
              "--mla-prefill chooses the method"),
      ignored("disable-shared-experts-fusion", "", kFlag, "true",
              "shared experts are computed on their own"),
      ignored("tbo-token-distribution-threshold", "", kFloat, "0.48",
              "two batches are never overlapped"),
      refused("page-size", "block-size", kInt, "64", "pages hold 64 tokens"),
      refused("radix-eviction-policy", "", kString, "lru",
              "the least recently used leaf goes first"),
      refused("kv-cache-memory-bytes", "", kInt, "", "give --max-total-tokens instead"),
      refused("num-gpu-blocks-override", "", kInt, "", "give --max-total-tokens instead"),
      refused("default-chat-template-kwargs", "", kString, "{}",
              "send chat_template_kwargs with the request instead"),
      refused("chat-template-content-format", "", kString, "auto",
              "the format is detected from the template"),
      refused("allow-auto-truncate", "", kFlag, "false",
              "a prompt that is too long is an error of its request"),
      refused("fastapi-root-path", "root-path", kString, "", "let the proxy strip the path"),
      refused("log-requests", "enable-log-requests", kFlag, "false",
              "prompts and outputs are never logged"),
      refused("log-requests-level", "", kInt, "", "prompts and outputs are never logged"),
      refused("log-requests-format", "", kString, "text", "prompts and outputs are never logged"),
      refused("log-style", "", kString, "human", "log lines have one wording"),
      refused("crash-dump-folder", "", kString, "", "requests are never written to disk"),
      ignored("enable-trace", "", kFlag, "false",
              "traces are exported where --otlp-traces-endpoint names a collector"),
      refused("moe-a2a-backend", "", kString, "none",
              "every rank has all tokens, also with --ep-size, and exchanges no tokens"),
      refused("enable-two-batch-overlap", "", kFlag, "false", "ranks exchange no tokens"),
      stands_for("ep-dispatch-algorithm", "static", "static",
                 "a hash of the token takes one of an expert's places"),
      stands_for("eplb-algorithm", "auto", "auto, deepseek",
                 "experts are packed by their load over the groups of one host"),
      stands_for("expert-distribution-recorder-mode", "stat", "stat",
                 "choices of experts are counted, and /metrics has them"),
      refused("expert-distribution-recorder-buffer-size", "eplb-window-size", kInt, "",
              "the load since the last rebalance counts; give --eplb-rebalance-num-iterations"),
      refused("eplb-config", "", kString, "",
              "give --ep-num-redundant-experts and --eplb-rebalance-num-iterations instead"),
      refused("eplb-log-balancedness", "", kFlag, "false", "/metrics has sglang:eplb_balancedness"),
      refused("master-addr", "", kString, "", "give --dist-init-addr HOST:PORT instead"),
      refused("master-port", "", kInt, "", "give --dist-init-addr HOST:PORT instead"),
      refused("structured-outputs-config", "", kString, "",
              "constrained output has no settings of its own; requests say what they want"),
      stands_for("speculative-accept-threshold-single", "1.0", "1, 1.0",
                 "a draft is kept only where the model itself would have chosen it"),
      stands_for("speculative-accept-threshold-acc", "1.0", "1, 1.0",
                 "a draft is kept only where the model itself would have chosen it"),
      stands_for("speculative-ngram-min-bfs-breadth", "1", "1", "drafts of NGRAM are chains"),
      stands_for("speculative-ngram-max-bfs-breadth", "1", "1", "drafts of NGRAM are chains"),
      refused("speculative-adaptive-config", "", kString, "",
              "the number of drafts follows from costs that are measured at the start"),
      refused("speculative-ngram-match-type", "", kString, "",
              "drafts follow the first place of the longest match"),
      refused("speculative-ngram-branch-length", "speculative-ngram-max-trie-depth", kInt, "",
              "--speculative-ngram-max-match-window-size bounds a match"),
      refused(
          "speculative-ngram-capacity", "", kInt, "",
          "NGRAM looks up a request's own tokens, and all of them; SUFFIX keeps those of finished "
          "answers (suffix_decoding_max_cached_requests in --speculative-config)"),
      refused("enable-lora", "", kFlag, "false", "adapters are not served by this version"),
      refused("lora-paths", "lora-modules", kString, "", "adapters are not served by this version"),
      refused("max-loras-per-batch", "max-loras", kInt, "",
              "adapters are not served by this version"),
      refused("max-lora-rank", "", kInt, "", "adapters are not served by this version"),
      refused("enable-hierarchical-cache", "", kFlag, "false",
              "the KV cache lives in the memory of the devices that compute"),
      refused("hicache-ratio", "", kFloat, "",
              "the KV cache lives in the memory of the devices that compute"),
      refused("hicache-size", "kv-offloading-size", kInt, "0",
              "the KV cache lives in the memory of the devices that compute"),
      refused("cpu-offload-gb", "", kFloat, "0",
              "all weights live in the memory of the devices that compute"),
      refused("disaggregation-mode", "", kString, "null", "one server prefills and decodes"),
      refused("disaggregation-transfer-backend", "", kString, "",
              "one server prefills and decodes"),
      refused("disaggregation-bootstrap-port", "", kInt, "", "one server prefills and decodes"),
      refused("kv-transfer-config", "", kString, "", "one server prefills and decodes"),
      refused("pooler-config", "override-pooler-config", kString, "",
              "give --pooling; whether vectors are normalised is a field of the request"),
  };
}

}  // namespace sluice
