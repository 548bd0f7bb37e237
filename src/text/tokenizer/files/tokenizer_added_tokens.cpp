// Added tokens that stand in the files beside a tokenizer.json.
//
// Source: PreTrainedTokenizerFast and PreTrainedTokenizerBase._from_pretrained of transformers, and
// add_tokens of tokenizers `tokenizer/added_vocabulary.rs`. The order of the steps decides the ids:
// 1. Rows of added_tokens_decoder, by number. Without that key: special_tokens_map.json is laid
//    over tokenizer_config.json, and rows of added_tokens.json count.
// 2. Named special tokens that are no added tokens yet.
// 3. Additional special tokens that are no added tokens yet.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxMore = 100'000;  // tokens of the side files

class Adder {
 public:
  Adder(const TokenizerSideFiles& side, std::string_view what, TokenizerParts& parts)
      : side_(side), what_(what), parts_(parts) {}

  void run() {
    const Json& config = side_.config;
    const bool has_decoder =
        config.contains("added_tokens_decoder") && !config["added_tokens_decoder"].is_null();
    read_named(config);
    read_extra(config);
    if (has_decoder) {
      read_decoder(config["added_tokens_decoder"]);
    } else {
      read_named(side_.special_tokens);
      read_extra(side_.special_tokens);
      read_added_tokens();
    }
    if (const auto& pad = side_.padding_token; !pad.empty() && !named_.contains("pad_token"))
      named_["pad_token"] = *token_of(Json(pad), "padding.pad_token", true);
    for (const auto& [key, token] : decoder_) add_row(token, key);
    for (const auto& [text, id] : parts_.added_ids) known_.insert(text);
    for (const char* name : kNamedTokens)
      if (const auto found = named_.find(name); found != named_.end()) add_special(found->second);
    for (const auto& [name, token] : own_named_) add_special(token);
    for (const AddedToken& token : extra_) add_special(token);
  }

 private:
  // A text, or an object with the flags of a token. Nothing for null.
  std::optional<AddedToken> token_of(const Json& value, const std::string& path,
                                     bool special) const {
    if (value.is_null()) return std::nullopt;
    AddedToken token;
    token.special = special;
    if (value.is_object()) {
      token.special = special || flag_of(value, "special", false);
      token.single_word = flag_of(value, "single_word", false);
      token.lstrip = flag_of(value, "lstrip", false);
      token.rstrip = flag_of(value, "rstrip", false);
    }
    token.content =
        token_text_of(Json{{"token", value}}, "token", fmt::format("{}: {}", what_, path));
    token.normalized =
        value.is_object() ? flag_of(value, "normalized", !token.special) : !token.special;
    require(token.content.size() <= AddedTokenMatcher::kMaxContentBytes,
            "{}: {} has {} bytes; at most {} are allowed", what_, path, token.content.size(),
            AddedTokenMatcher::kMaxContentBytes);
    require(is_valid_utf8(token.content), "{}: {} is not UTF-8", what_, path);
    return token.content.empty() ? std::nullopt : std::optional(token);
  }

  void read_named(const Json& file) {
    for (const auto& [key, value] : file.items()) {
      if (!key.ends_with("_token")) continue;
      const bool is_known = std::find(std::begin(kNamedTokens), std::end(kNamedTokens), key) !=
                            std::end(kNamedTokens);
      // add_bos_token and its like are switches; other names are tokens of one model.
      if (!is_known && !value.is_string() && !value.is_object()) continue;
      if (value.is_null()) {
        named_.erase(key);
      } else if (const auto token = token_of(value, key, true)) {
        if (is_known)
          named_[key] = *token;
        else
          own_named_.emplace_back(key, *token);
      }
    }
  }

  void read_extra(const Json& file) {
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
      const auto list = file.find(key);
      if (list == file.end() || list->is_null()) continue;
      require(list->is_array() || list->is_object(), "{}: {} must be a list of tokens", what_, key);
      for (const Json& item : *list)
        if (const auto token = token_of(item, key, true)) extra_.push_back(*token);
      require(extra_.size() <= kMaxMore, "{}: {} has more than {} entries", what_, key, kMaxMore);
    }
  }

  void read_decoder(const Json& rows) {
    require(rows.is_object(), "{}: added_tokens_decoder must be an object", what_);
    require(rows.size() <= kMaxMore, "{}: added_tokens_decoder has more than {} entries", what_,
            kMaxMore);
    for (const auto& [key, row] : rows.items()) {
      require(row.is_object() && row.contains("content") && row["content"].is_string() &&
                  !key.empty() && key.size() <= 9 &&
                  std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }),
              "{}: added_tokens_decoder[\"{}\"] must have an id as its key and a content", what_,
              key);
      if (const auto token = token_of(row, "added_tokens_decoder." + key, false))
        decoder_[std::stoll(key)] = *token;
    }
  }

  void read_added_tokens() {
    require(side_.added_tokens.size() <= kMaxMore, "{}: added_tokens.json has more than {} entries",
            what_, kMaxMore);
    for (const auto& [text, id] : side_.added_tokens.items()) {
      require(id.is_number_integer(), "{}: added_tokens.json: the id of \"{}\" must be an integer",
              what_, text);
      if (const auto token = token_of(Json(text), "added_tokens.json", is_special(text)))
        decoder_[id.get<std::int64_t>()] = *token;
    }
    // Rows of the tokenizer.json itself come last, so they win.
    for (const auto& [id, token] : parts_.added) decoder_[id] = token;
  }

  bool is_named(const std::string& text) const {
    const auto is_it = [&](const auto& named) { return named.second.content == text; };
    return std::ranges::any_of(named_, is_it) || std::ranges::any_of(own_named_, is_it);
  }
  bool is_special(const std::string& text) const {
    return is_named(text) ||
           std::ranges::any_of(extra_, [&](const auto& e) { return e.content == text; });
  }

  void add_row(AddedToken token, std::int64_t stated_id) {
    token.special = token.special || is_named(token.content);
    const auto before = parts_.added_ids.find(token.content);
    if (before != parts_.added_ids.end() && same_flags(parts_.added.at(before->second), token))
      return;
    const std::int32_t id = place(token);
    if (id != stated_id)
      log_warning(
          "{}: the files beside it say that \"{}\" has id {}; it gets {}, as in transformers",
          what_, token.content, stated_id, id);
  }

  void add_special(const AddedToken& token) {
    if (!known_.contains(token.content)) place(token);  // of two with one text the last counts
  }

  static bool same_flags(const AddedToken& a, const AddedToken& b) {
    return a.single_word == b.single_word && a.lstrip == b.lstrip && a.rstrip == b.rstrip &&
           a.normalized == b.normalized && a.special == b.special;
  }

  // The id: its own if the text is a token already, else the next one.
  std::int32_t place(AddedToken token) {
    const auto added = parts_.added_ids.find(token.content);
    if (added != parts_.added_ids.end()) {
      token.id = added->second;
      token.special =
          token.special || parts_.added.at(token.id).special;  // special once and for all
    } else if (const auto known = parts_.vocab.find(token.content)) {
      token.id = *known;
    } else {
      const auto past_added =
          std::max_element(parts_.added.begin(), parts_.added.end(),
                           [](const auto& a, const auto& b) { return a.first < b.first; });
      const auto num_vocab = static_cast<std::int32_t>(parts_.vocab.num_tokens());
      token.id = num_vocab;
      if (past_added != parts_.added.end() && (past_added->first >= num_vocab || num_vocab == 0))
        token.id = past_added->first + 1;
      // The numbers of a vocabulary may have gaps; an id of another token would be wrong.
      while (parts_.vocab.contains(token.id) || parts_.added.contains(token.id)) ++token.id;
    }
    const auto before = parts_.added.find(token.id);
    if (before != parts_.added.end() && before->second.content != token.content)
      parts_.added_ids.erase(before->second.content);
    parts_.added_ids[token.content] = token.id;
    parts_.added[token.id] = token;
    return token.id;
  }

  const TokenizerSideFiles& side_;
  std::string_view what_;
  TokenizerParts& parts_;
  std::map<std::string, AddedToken> named_;
  std::vector<std::pair<std::string, AddedToken>> own_named_;
  std::vector<AddedToken> extra_;
  std::map<std::int64_t, AddedToken> decoder_;
  std::set<std::string> known_;  // added tokens before the special ones
};

}  // namespace

void add_more_tokens(const TokenizerSideFiles& side, std::string_view what, TokenizerParts& parts) {
  Adder(side, what, parts).run();
}

}  // namespace sluice
