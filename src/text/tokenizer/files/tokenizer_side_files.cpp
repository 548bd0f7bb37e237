// Special and added tokens in files beside a vocabulary, and vocabularies in plain text files.
#include <simdjson.h>

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/tokenizer/split_patterns.h"
#include "text/unicode.h"

namespace sluice {
namespace {

void put(AddedToken token, std::string_view what, TokenizerParts& parts) {
  require(!token.content.empty() && token.content.size() <= AddedTokenMatcher::kMaxContentBytes,
          "{}: added token {} has {} bytes; allowed are 1 to {}", what, token.id,
          token.content.size(), AddedTokenMatcher::kMaxContentBytes);
  require(is_valid_utf8(token.content), "{}: added token {} is not UTF-8", what, token.id);
  const auto [place, is_new] = parts.added_ids.emplace(token.content, token.id);
  require(is_new || place->second == token.id, "{}: added token \"{}\" has the ids {} and {}", what,
          token.content, place->second, token.id);
  // A later name of an id replaces the earlier one.
  const auto before = parts.added.find(token.id);
  if (before != parts.added.end() && before->second.content != token.content)
    parts.added_ids.erase(before->second.content);
  parts.added[token.id] = std::move(token);
}

std::int32_t checked_id(std::int64_t id, std::string_view what, std::string_view text) {
  require(id >= 0 && id <= TokenTable::kMaxId,
          "{}: added token \"{}\" has id {}; allowed are 0 to {}", what, text, id,
          TokenTable::kMaxId);
  return static_cast<std::int32_t>(id);
}

void add_decoder_rows(const Json& rows, std::string_view what, TokenizerParts& parts) {
  for (const auto& [key, row] : rows.items()) {
    require(row.is_object() && row.contains("content") && row["content"].is_string() &&
                !key.empty() && key.size() <= 9 &&
                std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }),
            "{}: added_tokens_decoder[\"{}\"] must have an id as its key and a content", what, key);
    AddedToken token;
    token.content = row["content"].get<std::string>();
    token.id = checked_id(std::stoll(key), what, token.content);
    token.special = flag_of(row, "special", false);
    token.single_word = flag_of(row, "single_word", false);
    token.lstrip = flag_of(row, "lstrip", false);
    token.rstrip = flag_of(row, "rstrip", false);
    put(std::move(token), what, parts);
  }
}

void add_by_name(const std::string& text, std::string_view what, TokenizerParts& parts) {
  if (text.empty() || parts.added_ids.contains(text)) return;
  const auto id = parts.vocab.find(text);
  if (!id) return;
  AddedToken token;
  token.id = *id;
  token.content = text;
  token.special = true;
  put(std::move(token), what, parts);
}

// Lines without their line breaks.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

// The added_tokens of a tokenizer.json from the side files, in order of ids.
using IdOf = std::function<std::optional<std::int64_t>(const std::string&)>;
Json added_rows(const TokenizerSideFiles& side, std::string_view what, const IdOf& id_of) {
  std::map<std::int64_t, Json> rows;
  const auto add = [&](std::int64_t id, Json row, bool special) {
    row["id"] = id;
    row["special"] = row.value("special", special);
    rows.emplace(id, std::move(row));
  };
  const Json decoder = side.config.value("added_tokens_decoder", Json::object());
  require(decoder.is_object(), "{}: added_tokens_decoder must be an object", what);
  for (const auto& [key, row] : decoder.items()) {
    require(row.is_object() && !key.empty() && key.size() <= 9 &&
                std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }),
            "{}: added_tokens_decoder[\"{}\"] must have an id as its key", what, key);
    add(std::stoll(key), row, false);
  }
  for (const auto& [text, id] : side.added_tokens.items()) {
    require(id.is_number_integer(), "{}: added_tokens.json: the id of \"{}\" must be an integer",
            what, text);
    add(id.get<std::int64_t>(), {{"content", text}}, false);
  }
  for (const char* name : kNamedTokens)
    for (const Json* file : {&side.config, &side.special_tokens}) {
      const std::string text = token_text_of(*file, name, what);
      if (const auto id = text.empty() ? std::nullopt : id_of(text))
        add(*id, {{"content", text}, {"normalized", false}}, true);
    }
  Json out = Json::array();
  for (auto& [id, row] : rows) out.push_back(std::move(row));
  return out;
}

}  // namespace

bool flag_of(const Json& config, const char* key, bool otherwise) {
  const auto member = config.find(key);
  if (member == config.end() || member->is_null()) return otherwise;
  require(member->is_boolean(), "tokenizer_config.json: {} must be true or false", key);
  return member->get<bool>();
}

std::string token_text_of(const Json& file, const std::string& key, std::string_view what) {
  const auto member = file.find(key);
  if (member == file.end() || member->is_null()) return "";
  const Json& value = *member;
  if (value.is_string()) return value.get<std::string>();
  const auto content = value.is_object() ? value.find("content") : value.end();
  require(value.is_object() && content != value.end() && content->is_string(),
          "{}: {} must be a string or an object with \"content\"", what, key);
  return content->get<std::string>();
}

void add_side_tokens(const TokenizerSideFiles& side, std::string_view what, TokenizerParts& parts) {
  if (const auto rows = side.config.find("added_tokens_decoder");
      rows != side.config.end() && !rows->is_null()) {
    require(rows->is_object(), "{}: added_tokens_decoder must be an object", what);
    add_decoder_rows(*rows, what, parts);
  }
  for (const auto& [text, id] : side.added_tokens.items()) {
    require(id.is_number_integer(), "{}: added_tokens.json: the id of \"{}\" must be an integer",
            what, text);
    if (parts.added_ids.contains(text)) continue;
    AddedToken token;
    token.content = text;
    token.id = checked_id(id.get<std::int64_t>(), what, text);
    put(std::move(token), what, parts);
  }
  for (const Json* file : {&side.config, &side.special_tokens}) {
    for (const char* name : kNamedTokens)
      add_by_name(token_text_of(*file, name, what), what, parts);
    const auto more = file->find("additional_special_tokens");
    if (more == file->end() || !more->is_array()) continue;
    for (const Json& item : *more)
      add_by_name(token_text_of(Json{{"token", item}}, "token", what), what, parts);
  }
}

std::string vocab_merges_json(std::string_view vocab, std::string_view merges,
                              std::string_view what, const TokenizerSideFiles& side) {
  simdjson::dom::parser parser;
  simdjson::dom::object table;
  require(parser.parse(vocab.data(), vocab.size()).get(table) == simdjson::SUCCESS,
          "{}: vocab.json must be an object of tokens and ids", what);
  const IdOf id_of = [&](const std::string& text) -> std::optional<std::int64_t> {
    std::int64_t id = 0;
    return table.at_key(text).get(id) == simdjson::SUCCESS ? std::optional(id) : std::nullopt;
  };
  Json rows = Json::array();
  for (const std::string_view line : lines_of(merges))
    if (!line.empty() && !line.starts_with("#version")) rows.push_back(std::string(line));
  const Json name = side.config.value("tokenizer_class", Json());
  const bool qwen = name.is_string() && name.get<std::string>().starts_with("Qwen2");
  Json steps = Json::array();
  if (qwen)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(split_patterns::kQwen2)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", flag_of(side.config, "add_prefix_space", false)},
                   {"use_regex", !qwen}});
  // The vocabulary is large, so its text is copied unchanged after a check that it is one object.
  return fmt::format(
      R"({{"added_tokens":{},"normalizer":{},"pre_tokenizer":{{"type":"Sequence",)"
      R"("pretokenizers":{}}},)"
      R"("decoder":{{"type":"ByteLevel"}},"model":{{"type":"BPE","vocab":{},"merges":{}}}}})",
      dump_json(added_rows(side, what, id_of)), qwen ? R"({"type":"NFC"})" : "null",
      dump_json(steps), vocab, dump_json(rows));
}

std::string vocab_txt_json(std::string_view vocab, std::string_view what,
                           const TokenizerSideFiles& side) {
  std::unordered_map<std::string, std::int64_t> table;
  std::string rows;
  std::int64_t id = 0;
  for (const std::string_view line : lines_of(vocab)) {
    std::string text(line);
    require(is_valid_utf8(text), "{}: line {} is not UTF-8", what, id + 1);
    // A repeated line (an empty one at the end, for example) only takes a number.
    if (!text.empty() && table.emplace(text, id).second)
      rows += fmt::format("{}{}:{}", rows.empty() ? "" : ",", dump_json(Json(text)), id);
    ++id;
  }
  require(!table.empty(), "{}: there are no tokens", what);
  const IdOf id_of = [&](const std::string& text) -> std::optional<std::int64_t> {
    const auto found = table.find(text);
    return found == table.end() ? std::nullopt : std::optional(found->second);
  };
  TokenizerSideFiles filled = side;
  const auto named = [&](const char* key, const char* otherwise) {
    std::string text = token_text_of(side.config, key, what);
    if (text.empty()) text = token_text_of(side.special_tokens, key, what);
    if (text.empty()) text = otherwise;
    filled.config[key] = text;
    return text;
  };
  const std::string unk = named("unk_token", "[UNK]"), cls = named("cls_token", "[CLS]"),
                    sep = named("sep_token", "[SEP]");
  named("pad_token", "[PAD]");
  named("mask_token", "[MASK]");
  const Json normalizer = {
      {"type", "BertNormalizer"},
      {"clean_text", true},
      {"handle_chinese_chars", flag_of(side.config, "tokenize_chinese_chars", true)},
      {"strip_accents", side.config.value("strip_accents", Json())},
      {"lowercase", flag_of(side.config, "do_lower_case", true)}};
  Json ends;
  if (id_of(cls) && id_of(sep))
    ends = {{"type", "BertProcessing"},
            {"cls", Json::array({cls, *id_of(cls)})},
            {"sep", Json::array({sep, *id_of(sep)})}};
  return fmt::format(
      R"({{"added_tokens":{},"normalizer":{},"pre_tokenizer":{{"type":"BertPreTokenizer"}},)"
      R"("post_processor":{},)"
      R"("decoder":{{"type":"WordPiece","prefix":"##","cleanup":true}},)"
      R"("model":{{"type":"WordPiece","vocab":{{{}}},)"
      R"("unk_token":{},"continuing_subword_prefix":"##","max_input_chars_per_word":100}}}})",
      dump_json(added_rows(filled, what, id_of)), dump_json(normalizer), dump_json(ends), rows,
      dump_json(Json(unk)));
}

}  // namespace sluice
