#include "checkpoint/gguf/gguf_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};

}  // namespace

bool is_gguf_end_text(std::string_view text) {
  return std::find(std::begin(kEndTexts), std::end(kEndTexts), text) != std::end(kEndTexts);
}

std::optional<std::int64_t> gguf_token_id(const GgufFile& file, std::string_view name,
                                          std::int64_t num_tokens) {
  try {
    const auto id = file.find_integer("tokenizer.ggml." + std::string(name));
    return id && *id >= 0 && *id < num_tokens ? id : std::nullopt;
  } catch (const Error&) {  // another type than an integer
    return std::nullopt;
  }
}

}  // namespace sluice
