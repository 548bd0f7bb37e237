#include "checkpoint/gguf/gguf_pre_tokenizers.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Han letters stand apart; the other letters are those of GPT-4o.
constexpr std::string_view kKimiK2 =
    R"(\p{Han}+|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
    R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kHan = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view kHanAndKana = "[一-龥぀-ゟ゠-ヿ]+";
// The letters of alphabets with two cases, as the tokenizers of DeepSeek LLM and V2 list them.
constexpr std::string_view kCasedLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-"
    "Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌ"
    "ῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-"
    "𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

// Steps in order: digits one by one, the patterns, then bytes (cut as GPT-2 does, or not).
struct Row {
  std::string_view name;
  std::array<std::string_view, 5> patterns = {};
  bool digits_first = false;
  bool digits_last = false;
  bool gpt2 = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;
};
constexpr Row row_of_llama3(std::string_view name) {
  return {.name = name, .patterns = {kLlama3}, .ignore_merges = true, .adds_bos = true};
}
constexpr Row row_of_starcoder(std::string_view name) {
  return {.name = name, .digits_first = true, .gpt2 = true};
}
constexpr Row kRows[] = {
    {.name = "default",
     .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    {.name = "gpt-2", .gpt2 = true},
    {.name = "phi-2", .gpt2 = true},
    {.name = "exaone4", .gpt2 = true},
    {.name = "granite-docling", .gpt2 = true},
    {.name = "mpt", .gpt2 = true},
    {.name = "olmo", .gpt2 = true},
    row_of_llama3("llama-bpe"),
    row_of_llama3("llama3"),
    row_of_llama3("llama-v3"),
    row_of_llama3("falcon3"),
    row_of_llama3("pixtral"),
    row_of_llama3("lfm2"),
    {.name = "dbrx", .patterns = {kLlama3}},
    {.name = "smaug-bpe", .patterns = {kLlama3}},
    {.name = "chatglm-bpe", .patterns = {kLlama3}},
    {.name = "glm4", .patterns = {kLlama3}, .ignore_merges = true},
    {.name = "glm5", .patterns = {kLlama3}, .ignore_merges = true},
    {.name = "gpt-4o", .patterns = {kGpt4o}},
    {.name = "llama4", .patterns = {kGpt4o}},
    {.name = "minimax-m2", .patterns = {kGpt4o}},
    {.name = "kimi-k2", .patterns = {kKimiK2}},
    {.name = "seed-coder", .patterns = {kSeedCoder}},
    {.name = "falcon", .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
    {.name = "bloom", .patterns = {" ?[^(\\s|.,!?…。，、।۔،)]+"}},
    {.name = "qwen2", .patterns = {kQwen2}, .nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2}, .nfc = true},
    {.name = "megrez", .patterns = {kQwen2}, .nfc = true},
    {.name = "qwen35", .patterns = {kQwen35}, .nfc = true},
    {.name = "stablelm2", .patterns = {kQwen2}},
    {.name = "hunyuan", .patterns = {kQwen2}},
    {.name = "tekken", .patterns = {kTekken}, .ignore_merges = true, .adds_bos = true},
    row_of_starcoder("smollm"),
    row_of_starcoder("starcoder"),
    row_of_starcoder("refact"),
    row_of_starcoder("command-r"),
    row_of_starcoder("codeshell"),
    row_of_starcoder("exaone"),
    row_of_starcoder("minerva-7b"),
    {.name = "deepseek-llm",
     .patterns = {"[\r\n]", kCasedLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kHan},
     .digits_last = true},
    {.name = "deepseek-coder",
     .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHan},
     .digits_last = true},
    {.name = "deepseek-v3", .patterns = {R"(\p{N}{1,3})", kHanAndKana, kDeepseekV3}},
    {.name = "hunyuan-dense", .patterns = {R"(\p{N}{1,3})", kHanAndKana, kDeepseekV3}},
};

std::string list_of_names() {
  std::string list;
  for (const Row& row : kRows) list += (list.empty() ? "" : ", ") + std::string(row.name);
  return list;
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name, std::string_view what) {
  if (name.empty()) name = "default";
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& r) { return r.name == name; });
  require(row != std::end(kRows), "{}: tokenizer.ggml.pre is {}, which is not known; known are {}",
          what, name.substr(0, 64), list_of_names());
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  Json steps = Json::array();
  if (row->digits_first) steps.push_back(digits);
  for (const std::string_view pattern : row->patterns)
    if (!pattern.empty())
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", std::string(pattern)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
  if (row->digits_last) steps.push_back(digits);
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", row->gpt2}});
  GgufPreTokenizer out;
  out.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  if (row->nfc) out.normalizer = {{"type", "NFC"}};
  out.ignore_merges = row->ignore_merges;
  out.adds_bos = row->adds_bos;
  return out;
}

}  // namespace sluice
