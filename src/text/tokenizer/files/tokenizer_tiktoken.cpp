// tiktoken rank files and Mistral's tekken.json -> TokenizerParts.
//
// A rank file has a line for every token: the base64 of its bytes, a space, and its rank, which is
// also its id. The pair of neighbours whose concatenated bytes have the lowest rank merges first. A
// piece that is a token is not split. Source: tiktoken `src/lib.rs` (byte_pair_merge, encode),
// `load.py`; mistral-common `tokens/tokenizers/tekken.py`.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/tokenizer/split_patterns.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kMaxSpecialTokens = 1'000'000;
constexpr std::size_t kMaxLineBytes = 16384;

// Properties of published models that their files lack. A row matches by the file's name or the
// model_type.
struct KnownFile {
  std::string_view file, model_type;
  std::string_view pattern;
  bool nfc;
  std::string_view specials;  // in order after the ranks: a name, or name#n for name with 0 to n -
                              // 1 in the position of {}
};
constexpr KnownFile kKnownFiles[] = {
    {"qwen.tiktoken", "qwen", split_patterns::kQwen2, true,
     "<|endoftext|> <|im_start|> <|im_end|> <|extra_{}|>#205"},
    {"tiktoken.model", "kimi_k2", split_patterns::kKimi, false, ""},
    {"", "kimi_k25", split_patterns::kKimi, false, ""},
    {"", "kimi_linear", split_patterns::kKimi, false, ""},
    {"r50k_base.tiktoken", "", split_patterns::kGpt2, false, "<|endoftext|>"},
    {"o200k_base.tiktoken", "gpt_oss", split_patterns::kO200k, false, ""},
};

const KnownFile* known_file(std::string_view what, const std::string& model_type) {
  for (const KnownFile& row : kKnownFiles)
    if ((!row.file.empty() && what.ends_with(row.file)) ||
        (!row.model_type.empty() && model_type == row.model_type))
      return &row;
  return nullptr;
}

// The tokens as bytes, by id.
using Ranks = std::vector<std::pair<std::string, std::int64_t>>;

Ranks read_ranks(std::string_view text, std::string_view what) {
  Ranks ranks;
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    std::int64_t rank = -1;
    bool good = line.size() <= kMaxLineBytes && space != std::string_view::npos;
    std::optional<std::string> bytes;
    if (good) {
      const char* first = line.data() + space + 1;
      const char* last = line.data() + line.size();
      const auto [stop, error] = std::from_chars(first, last, rank);
      bytes = decode_base64(line.substr(0, space));
      good = error == std::errc() && stop == last && bytes && !bytes->empty() &&
             bytes->size() <= kMaxTokenBytes;
    }
    if (!good)
      fail(ErrorKind::kBadInput,
           "{}: line {} is not the base64 of 1 to {} bytes, a space and a rank", what, line_number,
           kMaxTokenBytes);
    if (rank < 0 || rank > TokenTable::kMaxId)
      fail(ErrorKind::kBadInput, "{}: line {}: the rank is {}; allowed are 0 to {}", what,
           line_number, rank, TokenTable::kMaxId);
    ranks.emplace_back(std::move(*bytes), rank);
  }
  require(!ranks.empty(), "{}: there are no tokens", what);
  return ranks;
}

// The vocabulary in the byte alphabet, and every way to merge two tokens into a third.
void build_model(const Ranks& ranks, std::int32_t first_id, std::string_view what,
                 TokenizerParts& parts) {
  std::size_t total = 0;
  for (const auto& row : ranks) total += row.first.size();
  parts.vocab.reserve(ranks.size(), total + total / 2);
  const std::int64_t most = largest_id(ranks.size());
  for (const auto& [bytes, rank] : ranks) {
    require(rank + first_id <= most, "{}: of {} tokens one has rank {}; at most {} is allowed",
            what, ranks.size(), rank, most - first_id);
    parts.vocab.add(to_byte_alphabet(bytes), rank + first_id, what);
  }
  BpeOptions options;
  options.ignore_merges = true;
  parts.bpe = std::make_unique<BpeModel>(parts.vocab, std::move(options), what);
  require(parts.bpe->has_all_bytes(),
          "{}: not every single byte is a token, so that some texts could not be encoded", what);
  parts.bpe->reserve_merges(ranks.size() * 3);
  std::string alphabet;
  std::vector<std::size_t> starts;  // start of each character
  for (const auto& [bytes, rank] : ranks) {
    if (bytes.size() < 2) continue;
    alphabet.clear();
    starts.clear();
    for (const char c : bytes) {
      starts.push_back(alphabet.size());
      append_byte_alphabet(alphabet, static_cast<unsigned char>(c));
    }
    const std::string_view text = alphabet;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = parts.vocab.find(text.substr(0, starts[cut]));
      const auto right = left ? parts.vocab.find(text.substr(starts[cut])) : std::nullopt;
      if (right)
        parts.bpe->add_ranked_merge(*left, *right, static_cast<std::int32_t>(rank),
                                    static_cast<std::int32_t>(rank) + first_id, what);
    }
  }
}

void set_split(std::string_view pattern, std::string_view where, TokenizerParts& parts) {
  PreTokenizerStep split;
  split.kind = PreTokenizerStep::kSplitRegex;
  split.regex = std::make_shared<SplitRegex>(pattern, where);
  PreTokenizerStep bytes;
  bytes.kind = PreTokenizerStep::kByteAlphabet;
  parts.pre_tokenizer = PreTokenizer({std::move(split), std::move(bytes)});
}

void add_special(std::string_view text, std::int64_t id, std::string_view what,
                 TokenizerParts& parts) {
  require(
      !text.empty() && text.size() <= AddedTokenMatcher::kMaxContentBytes && is_valid_utf8(text),
      "{}: special token {} must be text of 1 to {} bytes", what, id,
      AddedTokenMatcher::kMaxContentBytes);
  require(id >= 0 && id <= TokenTable::kMaxId &&
              !parts.vocab.contains(static_cast<std::int32_t>(id)) &&
              !parts.added.contains(static_cast<std::int32_t>(id)),
          "{}: special token \"{}\" has id {}, which is taken or not in 0 to {}", what, text, id,
          TokenTable::kMaxId);
  require(parts.added.size() < kMaxSpecialTokens, "{}: more than {} special tokens", what,
          kMaxSpecialTokens);
  AddedToken token;
  token.id = static_cast<std::int32_t>(id);
  token.content = text;
  token.special = true;
  require(parts.added_ids.emplace(token.content, token.id).second,
          "{}: special token \"{}\" appears twice", what, text);
  parts.added.emplace(token.id, std::move(token));
}

// "<a> <b> <c_{}>#3" is <a>, <b>, <c_0>, <c_1>, <c_2>.
void add_known_specials(std::string_view list, std::string_view what, TokenizerParts& parts) {
  std::int64_t id = parts.vocab.size();
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    const std::string_view item = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t hash = item.find('#');
    if (hash == std::string_view::npos) {
      add_special(item, id++, what, parts);
      continue;
    }
    int count = 0;
    std::from_chars(item.data() + hash + 1, item.data() + item.size(), count);
    for (int i = 0; i < count; ++i)
      add_special(fmt::format(fmt::runtime(item.substr(0, hash)), i), id++, what, parts);
  }
}

void finish(std::string_view what, TokenizerParts& parts) {
  DecoderStage bytes;
  bytes.kind = DecoderStage::kByteLevel;
  parts.decoder = std::make_unique<TokenDecoder>(std::vector<DecoderStage>{bytes});
  place_added_tokens(what, parts);
}

}  // namespace

bool looks_like_tiktoken(std::string_view text) {
  const std::string_view line = text.substr(0, std::min(text.find('\n'), std::size_t{256}));
  const std::size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 &&
         decode_base64(line.substr(0, space)).has_value() && space + 1 < line.size() &&
         line[space + 1] >= '0' && line[space + 1] <= '9';
}

std::unique_ptr<TokenizerParts> tiktoken_parts(std::string_view text, std::string_view what,
                                               const Json& settings,
                                               const TokenizerSideFiles& side) {
  auto parts = std::make_unique<TokenizerParts>();
  build_model(read_ranks(text, what), 0, what, *parts);
  const KnownFile* known = known_file(what, side.model_type);
  const std::string where = fmt::format("{}: pat_str", what);
  if (settings.is_object()) {
    require(settings.contains("pat_str") && settings["pat_str"].is_string(), "{} must be a text",
            where);
    set_split(settings["pat_str"].get_ref<const std::string&>(), where, *parts);
    const auto special = settings.find("special_tokens");
    require(special == settings.end() || special->is_object(),
            "{}: special_tokens must be an object", what);
    if (special != settings.end())
      for (const auto& [token, id] : special->items()) {
        require(id.is_number_integer(), "{}: the id of special token \"{}\" must be an integer",
                what, token);
        add_special(token, id.get<std::int64_t>(), what, *parts);
      }
  } else {
    set_split(known != nullptr ? known->pattern : split_patterns::kLlama3, where, *parts);
    if (known != nullptr) add_known_specials(known->specials, what, *parts);
  }
  if (known != nullptr && known->nfc) parts->normalizer = Normalizer({NormalizerStep{}});
  add_side_tokens(side, what, *parts);
  finish(what, *parts);
  return parts;
}

std::unique_ptr<TokenizerParts> tekken_parts(const Json& file, std::string_view what) {
  const auto member = [&](const Json& object, const char* key) -> const Json& {
    require(object.is_object() && object.contains(key), "{}: {} is missing", what, key);
    return object[key];
  };
  const Json& config = member(file, "config");
  const auto count = [&](const char* key) {
    const Json& value = member(config, key);
    require(value.is_number_integer() && value.get<std::int64_t>() > 0 &&
                value.get<std::int64_t>() <= TokenTable::kMaxId,
            "{}: config.{} must be an integer of 1 to {}", what, key, TokenTable::kMaxId);
    return value.get<std::int64_t>();
  };
  const std::int64_t num_special = count("default_num_special_tokens");
  const std::int64_t num_ranks = count("default_vocab_size") - num_special;
  const Json& vocab = member(file, "vocab");
  require(vocab.is_array() && num_ranks > 0 && static_cast<std::size_t>(num_ranks) <= vocab.size(),
          "{}: config.default_vocab_size asks for {} entries of vocab", what, num_ranks);
  Ranks ranks;
  for (std::int64_t i = 0; i < num_ranks; ++i) {
    const Json& row = vocab[static_cast<std::size_t>(i)];
    const bool good = row.is_object() && row.contains("rank") && row["rank"] == i &&
                      row.contains("token_bytes") && row["token_bytes"].is_string();
    auto bytes =
        good ? decode_base64(row["token_bytes"].get_ref<const std::string&>()) : std::nullopt;
    if (!bytes || bytes->empty() || bytes->size() > kMaxTokenBytes)
      fail(ErrorKind::kBadInput, "{}: vocab[{}] must have \"rank\": {} and token_bytes", what, i,
           i);
    ranks.emplace_back(std::move(*bytes), i);
  }
  auto parts = std::make_unique<TokenizerParts>();
  build_model(ranks, static_cast<std::int32_t>(num_special), what, *parts);
  const Json& pattern = member(config, "pattern");
  require(pattern.is_string(), "{}: config.pattern must be a text", what);
  set_split(pattern.get_ref<const std::string&>(), fmt::format("{}: config.pattern", what), *parts);
  // Files of before 2025 do not list them.
  static constexpr std::string_view kNames[] = {"<unk>",
                                                "<s>",
                                                "</s>",
                                                "[INST]",
                                                "[/INST]",
                                                "[AVAILABLE_TOOLS]",
                                                "[/AVAILABLE_TOOLS]",
                                                "[TOOL_RESULTS]",
                                                "[/TOOL_RESULTS]",
                                                "[TOOL_CALLS]",
                                                "[IMG]",
                                                "<pad>",
                                                "[IMG_BREAK]",
                                                "[IMG_END]",
                                                "[PREFIX]",
                                                "[MIDDLE]",
                                                "[SUFFIX]",
                                                "[SYSTEM_PROMPT]",
                                                "[/SYSTEM_PROMPT]",
                                                "[TOOL_CONTENT]"};
  const Json listed = file.value("special_tokens", Json());
  for (std::int64_t id = 0; id < num_special; ++id) {
    std::string name = !listed.is_array() && id < static_cast<std::int64_t>(std::size(kNames))
                           ? std::string(kNames[id])
                           : fmt::format("<SPECIAL_{}>", id);
    if (listed.is_array() && static_cast<std::size_t>(id) < listed.size()) {
      const Json& row = listed[static_cast<std::size_t>(id)];
      require(row.is_object() && row.contains("token_str") && row["token_str"].is_string(),
              "{}: special_tokens[{}] has no token_str", what, id);
      name = row["token_str"].get<std::string>();
    }
    add_special(name, id, what, *parts);
  }
  finish(what, *parts);
  const auto id_of = [&](const char* text) -> std::optional<std::int32_t> {
    const auto found = parts->added_ids.find(text);
    return found == parts->added_ids.end() ? std::nullopt : std::optional(found->second);
  };
  parts->bos_token = "<s>";
  parts->eos_token = "</s>";
  parts->bos_id = id_of("<s>");
  parts->eos_id = id_of("</s>");
  if (parts->bos_id) parts->prefix_ids.push_back(*parts->bos_id);
  return parts;
}

}  // namespace sluice
