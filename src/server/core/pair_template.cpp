#include "server/core/pair_template.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxTokenizerBytes = 512 << 20;
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;

std::int32_t id_of(const Json& id) {
  require(id.is_number_integer() && id >= 0 && id < INT32_MAX,
          "tokenizer.json: an id of the post_processor is no token id");
  return id.get<std::int32_t>();
}

std::uint8_t type_of(const Json& piece) {
  const auto type = piece.find("type_id");
  if (type == piece.end()) return 0;
  require(type->is_number_integer() && *type >= 0 && *type < 256,
          "tokenizer.json: a type_id of the post_processor is out of range");
  return type->get<std::uint8_t>();
}

// The text of a member of the outermost object; empty: there is none. A vocabulary of millions of
// entries is passed over and not kept. Of what is no JSON, any part.
std::string_view member_of(std::string_view text, std::string_view key) {
  int depth = 0;
  std::size_t begin = std::string_view::npos;  // of the member's value
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t from = i + 1;
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
      if (i >= text.size()) return {};
      const std::size_t colon = text.find_first_not_of(" \t\r\n", i + 1);
      if (depth == 1 && begin == std::string_view::npos && text.substr(from, i - from) == key &&
          colon != std::string_view::npos && text[colon] == ':') {
        begin = colon + 1;
        i = colon;
      }
    }
    if (begin != std::string_view::npos && depth == 1 && (c == ',' || c == '}') && i > begin)
      return text.substr(begin, i - begin);
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return {};
}

// Whether the model is given token types: by `model_input_names` of tokenizer_config.json, else by
// the class, of which transformers' general one gives none.
bool has_types(const std::string& directory) {
  const std::optional<std::string> text =
      read_text_beneath(directory, "tokenizer_config.json", kMaxConfigBytes);
  if (!text) return true;
  const Json config = parse_json_or_throw(*text, "tokenizer_config.json");
  const auto names = config.find("model_input_names");
  if (names != config.end() && names->is_array())
    return std::ranges::count(*names, Json("token_type_ids")) > 0;
  const auto type = config.find("tokenizer_class");
  return type == config.end() || *type != "TokenizersBackend";
}

PairTemplate of_template(const Json& processor) {
  PairTemplate out;
  const auto pair = processor.find("pair");
  const auto special = processor.find("special_tokens");
  require(pair != processor.end() && pair->is_array() && pair->size() <= 64,
          "tokenizer.json: the post_processor has no list `pair`");
  for (const Json& entry : *pair) {
    require(entry.is_object(), "tokenizer.json: `pair` must be a list of objects");
    PairTemplate::Piece piece;
    if (const auto text = entry.find("Sequence"); text != entry.end() && text->is_object()) {
      const auto name = text->find("id");
      piece.text = name != text->end() && *name == "B" ? 1 : 0;
      piece.type = type_of(*text);
    } else {
      const auto token = entry.find("SpecialToken");
      require(token != entry.end() && token->is_object() && token->contains("id") &&
                  (*token)["id"].is_string() && special != processor.end() && special->is_object(),
              "tokenizer.json: `pair` has an entry that is neither text nor token");
      const auto known = special->find((*token)["id"].get<std::string>());
      require(known != special->end() && known->is_object() && known->contains("ids") &&
                  (*known)["ids"].is_array(),
              "tokenizer.json: `pair` names a token that special_tokens lacks");
      for (const Json& id : (*known)["ids"]) piece.ids.push_back(id_of(id));
      piece.type = type_of(*token);
    }
    out.pieces.push_back(std::move(piece));
  }
  return out;
}

PairTemplate of_cls_and_sep(const Json& processor, bool is_roberta) {
  const auto token = [&](const char* key) {
    const auto found = processor.find(key);
    require(found != processor.end() && found->is_array() && found->size() == 2,
            "tokenizer.json: the post_processor has no {}", key);
    return std::vector<std::int32_t>{id_of((*found)[1])};
  };
  const auto cls = token("cls"), sep = token("sep");
  const auto second = static_cast<std::uint8_t>(is_roberta ? 0 : 1);
  PairTemplate out;
  out.pieces = {{.text = -1, .ids = cls}, {.text = 0, .ids = {}}, {.text = -1, .ids = sep}};
  if (is_roberta) out.pieces.push_back({.text = -1, .ids = sep});
  out.pieces.push_back({.text = 1, .ids = {}, .type = second});
  out.pieces.push_back({.text = -1, .ids = sep, .type = second});
  return out;
}

}  // namespace

std::size_t PairTemplate::num_special() const {
  std::size_t count = 0;
  for (const Piece& piece : pieces) count += piece.ids.size();
  return count;
}

void PairTemplate::join(const std::vector<std::int32_t>& first,
                        const std::vector<std::int32_t>& second, std::vector<std::int32_t>& ids,
                        std::vector<std::uint8_t>& types) const {
  for (const Piece& piece : pieces) {
    const auto& from = piece.text < 0 ? piece.ids : piece.text == 0 ? first : second;
    ids.insert(ids.end(), from.begin(), from.end());
    types.insert(types.end(), from.size(), piece.type);
  }
}

PairTemplate PairTemplate::of(const Json& processor) {
  PairTemplate plain;
  plain.pieces = {{.text = 0, .ids = {}}, {.text = 1, .ids = {}}};
  if (processor.is_null()) return plain;
  require(processor.is_object() && processor.contains("type") && processor["type"].is_string(),
          "tokenizer.json: the post_processor has no type");
  const std::string type = processor["type"].get<std::string>();
  if (type == "TemplateProcessing") return of_template(processor);
  if (type == "BertProcessing") return of_cls_and_sep(processor, false);
  if (type == "RobertaProcessing") return of_cls_and_sep(processor, true);
  if (type == "ByteLevel") return plain;
  if (type == "Sequence") {
    const auto list = processor.find("processors");
    require(list != processor.end() && list->is_array() && list->size() <= 16,
            "tokenizer.json: the post_processor has no list of processors");
    // The last one that joins texts; those inside a list are no lists.
    for (auto one = list->rbegin(); one != list->rend(); ++one)
      if (one->is_object() && one->contains("type") && (*one)["type"] != "ByteLevel" &&
          (*one)["type"] != "Sequence")
        return of(*one);
    return plain;
  }
  fail(ErrorKind::kBadInput, "tokenizer.json: the post_processor {} is not supported for pairs",
       type.substr(0, 64));
}

PairTemplate PairTemplate::load(const std::string& directory) {
  const std::optional<std::string> text =
      directory.ends_with(".gguf")
          ? std::nullopt
          : read_text_beneath(directory, "tokenizer.json", kMaxTokenizerBytes);
  require(text.has_value(), "pairs of texts need a tokenizer.json, which is not there");
  const std::string_view processor = member_of(*text, "post_processor");
  PairTemplate out =
      of(processor.empty() ? Json() : parse_json_or_throw(processor, "tokenizer.json"));
  if (!has_types(directory))
    for (Piece& piece : out.pieces) piece.type = 0;
  return out;
}

void cut_longest_first(std::size_t most, std::vector<std::int32_t>& first,
                       std::vector<std::int32_t>& second) {
  while (first.size() + second.size() > most)
    (first.size() > second.size() ? first : second).pop_back();
}

}  // namespace sluice
