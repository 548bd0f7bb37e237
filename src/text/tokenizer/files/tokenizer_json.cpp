// tokenizer.json -> TokenizerParts: added tokens, post-processor and the whole. Other files read
// the model (tokenizer_json_model.cpp), the steps before it (tokenizer_json_steps.cpp) and the
// decoder (tokenizer_json_decoder.cpp).
#include <algorithm>
#include <unordered_set>

#include "text/tokenizer/files/tokenizer_field.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/tokenizer/files/tokenizer_json_steps.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{512} << 20;
constexpr std::size_t kMaxAddedTokens = 1'000'000;
constexpr std::size_t kMaxTemplateTokens = 64;

void read_added_tokens(const JsonField& root, std::string_view what, TokenizerParts& parts) {
  const auto field = root.find("added_tokens");
  if (!field) return;
  const std::vector<JsonField> items = field->items();
  require(items.size() <= kMaxAddedTokens,
          "{}: added_tokens has {} entries; at most {} are allowed", what, items.size(),
          kMaxAddedTokens);
  for (const JsonField& item : items) {
    AddedToken token;
    const std::int64_t id = item.at("id").integer();
    token.content = item.at("content").text();
    token.single_word = item.flag("single_word", false);
    token.lstrip = item.flag("lstrip", false);
    token.rstrip = item.flag("rstrip", false);
    token.special = item.flag("special", false);
    token.normalized = item.flag("normalized", !token.special);
    const std::string& content = token.content;
    require(!content.empty() && content.size() <= AddedTokenMatcher::kMaxContentBytes,
            "{}: {}.content has {} bytes; allowed are 1 to {}", what, item.path(), content.size(),
            AddedTokenMatcher::kMaxContentBytes);
    require(id >= 0 && id <= TokenTable::kMaxId, "{}: {}.id is {}; allowed are 0 to {}", what,
            item.path(), id, TokenTable::kMaxId);
    token.id = static_cast<std::int32_t>(id);
    const auto in_vocab = parts.vocab.find(content);
    require(!in_vocab || *in_vocab == token.id,
            "{}: {}: \"{}\" has id {} here and {} in model.vocab", what, item.path(), content, id,
            in_vocab.value_or(0));
    require(in_vocab || !parts.vocab.contains(token.id),
            "{}: {}: \"{}\" has id {}, which is \"{}\" in model.vocab", what, item.path(), content,
            id, parts.vocab.text(token.id));
    const auto [same_id, new_id] = parts.added.try_emplace(token.id, token);
    require(new_id || same_id->second.content == content,
            "{}: {}: \"{}\" and \"{}\" have the same id {}", what, item.path(), content,
            same_id->second.content, id);
    const auto [same_text, new_text] = parts.added_ids.try_emplace(content, token.id);
    require(new_text || same_text->second == token.id,
            "{}: {}: \"{}\" appears twice, with ids {} and {}", what, item.path(), content,
            same_text->second, id);
    same_id->second = token;  // a repeated entry replaces the first
  }
}

}  // namespace

void place_added_tokens(std::string_view what, TokenizerParts& parts) {
  for (std::int32_t id = 0; id < parts.vocab.size(); ++id)
    if (parts.vocab.contains(id)) parts.decoder->add(id, parts.vocab.text(id), false);
  std::vector<const AddedToken*> tokens;
  std::unordered_set<std::string_view> special_contents;
  for (const auto& [id, token] : parts.added) {
    tokens.push_back(&token);
    if (token.special) special_contents.insert(token.content);
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken* a, const AddedToken* b) { return a->id < b->id; });
  const std::size_t num_tokens = static_cast<std::size_t>(parts.vocab.size()) + tokens.size();
  require(tokens.empty() || tokens.back()->id <= largest_id(num_tokens),
          "{}: the added token \"{}\" has id {}; with {} tokens at most {} is allowed", what,
          tokens.empty() ? "" : tokens.back()->content, tokens.empty() ? 0 : tokens.back()->id,
          num_tokens, largest_id(num_tokens));
  SplitRegex::Scratch scratch;
  for (const AddedToken* token : tokens) {
    std::string text = token->content;
    try {
      if (token->normalized && !parts.normalizer.empty())
        text = parts.normalizer.apply(text, true, scratch);
    } catch (const Error& error) {
      fail(ErrorKind::kBadInput, "{}: added token \"{}\": {}", what, token->content,
           error.message());
    }
    (token->normalized ? parts.normalized_matcher : parts.raw_matcher).add(*token, text);
    // The reference compares the decoded text with the special contents. So a token whose content
    // changes in normalisation is not skipped.
    parts.decoder->add(token->id, text, special_contents.contains(text));
  }
}

namespace {

class PostProcessorReader {
 public:
  PostProcessorReader(std::string_view what, TokenizerParts& parts) : what_(what), parts_(parts) {}

  void read(const JsonField& field, int depth) {
    const std::string type(field.at("type").text());
    if (type == "ByteLevel") return;  // offsets only
    if (type == "Sequence") {
      require(depth < kMaxStepDepth, "{}: nested deeper than {} levels", field.path(),
              kMaxStepDepth);
      for (const JsonField& item : field.at("processors").items()) read(item, depth + 1);
    } else if (type == "TemplateProcessing") {
      read_template(field);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      wrap({pair_id(field.at("cls"))}, {pair_id(field.at("sep"))});
    } else {
      fail(ErrorKind::kBadInput,
           "{}: {}.type \"{}\" is not supported; supported are TemplateProcessing, ByteLevel, "
           "RobertaProcessing, "
           "BertProcessing, Sequence",
           what_, field.path(), type);
    }
  }

 private:
  using Ids = std::vector<std::int32_t>;

  void wrap(Ids before, const Ids& after) {
    before.insert(before.end(), parts_.prefix_ids.begin(), parts_.prefix_ids.end());
    parts_.prefix_ids = std::move(before);
    parts_.suffix_ids.insert(parts_.suffix_ids.end(), after.begin(), after.end());
  }

  std::int32_t known(const JsonField& field) const {
    const std::int64_t id = field.integer();
    const bool present = id >= 0 && id <= TokenTable::kMaxId &&
                         (parts_.vocab.contains(static_cast<std::int32_t>(id)) ||
                          parts_.added.contains(static_cast<std::int32_t>(id)));
    require(present, "{}: {} is {}, which is no token", what_, field.path(), id);
    return static_cast<std::int32_t>(id);
  }

  std::int32_t pair_id(const JsonField& field) const {  // ["</s>", 2]
    const auto items = field.items();
    require(items.size() == 2, "{}: {} must be a token and its id", what_, field.path());
    return known(items[1]);
  }

  void read_template(const JsonField& field) {
    Ids before, after;
    bool seen_text = false;
    for (const JsonField& item : field.at("single").items()) {
      if (item.find("Sequence")) {
        require(!seen_text, "{}: {}: a template with the text twice is not supported", what_,
                item.path());
        seen_text = true;
        continue;
      }
      const std::string_view name = item.at("SpecialToken").at("id").text();
      for (const JsonField& id : field.at("special_tokens").at(name).at("ids").items())
        (seen_text ? after : before).push_back(known(id));
    }
    require(seen_text, "{}: {}.single has no Sequence", what_, field.path());
    wrap(std::move(before), after);
    require(parts_.prefix_ids.size() + parts_.suffix_ids.size() <= kMaxTemplateTokens,
            "{}: {} adds more than {} tokens", what_, field.path(), kMaxTemplateTokens);
  }

  std::string_view what_;
  TokenizerParts& parts_;
};

}  // namespace

std::unique_ptr<TokenizerParts> parse_tokenizer_json(std::string_view text, std::string_view what,
                                                     const TokenizerSideFiles* side) {
  require(text.size() <= kMaxFileBytes, "{}: {} bytes; at most {} are allowed", what, text.size(),
          kMaxFileBytes);
  simdjson::dom::parser parser;
  simdjson::dom::element root_element;
  const auto error = parser.parse(text.data(), text.size()).get(root_element);
  require(error == simdjson::SUCCESS, "{}: not valid JSON: {}", what,
          simdjson::error_message(error));
  const JsonField root(root_element, fmt::format("{}:", what));

  auto parts = std::make_unique<TokenizerParts>();
  read_model(root, what, *parts);
  read_added_tokens(root, what, *parts);
  parts->size_in_file = parts->vocab.size();
  for (const auto& [id, token] : parts->added)
    parts->size_in_file = std::max(parts->size_in_file, id + 1);
  if (side != nullptr) {
    TokenizerSideFiles all = *side;
    if (const auto padding = root.find("padding"))
      all.padding_token = padding->text_or("pad_token", "");
    add_more_tokens(all, what, *parts);
  }
  if (const auto normalizer = root.find("normalizer"))
    parts->normalizer = read_normalizer(*normalizer);
  if (const auto pre_tokenizer = root.find("pre_tokenizer"))
    parts->pre_tokenizer = read_pre_tokenizer(*pre_tokenizer);
  if (!parts->bpe || !parts->bpe->has_all_bytes()) parts->pre_tokenizer.keep_byte_alphabet();
  if (const auto post_processor = root.find("post_processor"))
    PostProcessorReader(what, *parts).read(*post_processor, 0);
  parts->decoder = std::make_unique<TokenDecoder>(read_decoder(root.find("decoder")));
  place_added_tokens(what, *parts);
  return parts;
}

std::vector<std::pair<std::string, bool>> tokenizer_json_members(std::string_view text) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  std::vector<std::pair<std::string, bool>> members;
  if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS) return members;
  for (const auto& [key, value] : root) members.emplace_back(std::string(key), value.is_null());
  return members;
}

}  // namespace sluice
