#include "checkpoint/gguf/gguf_text.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_pre_tokenizers.h"
#include "checkpoint/gguf/gguf_sentencepiece.h"
#include "checkpoint/gguf/gguf_tokens.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// tokenizer.ggml.token_type
enum TokenType : std::int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

// Appends `text` as a JSON string.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

class TextReader {
 public:
  explicit TextReader(const GgufFile& file) : file_(file) {}

  GgufText run() {
    const std::string_view model = file_.required_string(key("model"));
    const bool unigram = model == "t5", pieces = unigram || model == "llama";
    require(pieces || model == "gpt2",
            "{}: {} is {}; supported are gpt2 (byte-level BPE), llama and t5 (SentencePiece): give "
            "--tokenizer a directory "
            "with a tokenizer.json of this model",
            file_.name(), key("model"), model.substr(0, 64));
    tokens_ = strings("tokens");
    types_ = file_.find_integers(key("token_type"))
                 .value_or(std::vector<std::int64_t>(tokens_.size(), 1));
    require(types_.size() == tokens_.size(), "{}: {} has {} entries and {} {}; they must be equal",
            file_.name(), key("tokens"), tokens_.size(), key("token_type"), types_.size());
    // An end of generation is a control token, whatever the file says of its type.
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (is_gguf_end_text(tokens_[i]) && types_[i] != kControl && types_[i] != kUnknown)
        types_[i] = kControl;
    GgufText out;
    read_ids(out);
    if (pieces) {
      GgufSentencePiece made = gguf_sentencepiece(file_, unigram, tokens_, types_);
      out.sentencepiece = std::move(made.model);
      out.tokenizer_config = std::move(made.tokenizer_config);
    } else {
      write_tokenizer(out.tokenizer_json);
    }
    read_templates(out);
    return out;
  }

 private:
  static std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

  std::vector<std::string_view> strings(std::string_view name) const {
    auto found = file_.find_strings(key(name));
    require(found.has_value(), "{}: the key {} is missing; it must be an array of strings",
            file_.name(), key(name));
    for (std::size_t i = 0; i < found->size(); ++i)
      require(simdjson::validate_utf8((*found)[i].data(), (*found)[i].size()),
              "{}: {}[{}] is not UTF-8", file_.name(), key(name), i);
    return std::move(*found);
  }

  // A value that is no id of a token is as if it were missing.
  std::optional<std::int64_t> token_id(std::string_view name) const {
    const auto id = gguf_token_id(file_, name, static_cast<std::int64_t>(tokens_.size()));
    if (!id && file_.has(key(name)))
      log_warning("{}: {} is {}, which is no id of the {} tokens: it is ignored", file_.name(),
                  key(name), file_.shown(key(name)), tokens_.size());
    return id;
  }

  void read_ids(GgufText& out) {
    constexpr std::pair<const char*, const char*> kNames[] = {{"bos_token_id", "bos_token"},
                                                              {"eos_token_id", "eos_token"},
                                                              {"unknown_token_id", "unk_token"},
                                                              {"padding_token_id", "pad_token"}};
    for (const auto& [gguf, hf] : kNames)
      if (const auto id = token_id(gguf))
        out.special_tokens[hf] = tokens_[static_cast<std::size_t>(*id)];
    const auto text_of = [&](const char* name) {
      const auto it = out.special_tokens.find(name);
      return it == out.special_tokens.end() ? std::string() : it->second;
    };
    out.bos_token = text_of("bos_token");
    out.eos_token = text_of("eos_token");
  }

  // Writes the document as text: in an ordered object a look-up for each of 10^5 keys would take
  // minutes.
  void write_tokenizer(std::string& out) const {
    const GgufPreTokenizer pre =
        gguf_pre_tokenizer(file_.find_string(key("pre")).value_or(""), file_.name());
    out = "{\"added_tokens\":[";
    const char* comma = "";
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool special = types_[i] == kControl || types_[i] == kUnknown;
      if ((!special && types_[i] != kUserDefined) || tokens_[i].empty()) continue;
      fmt::format_to(std::back_inserter(out),
                     "{}{{\"id\":{},\"special\":{},\"normalized\":false,\"content\":", comma, i,
                     special);
      append_quoted(out, tokens_[i]);
      out += '}';
      comma = ",";
    }
    fmt::format_to(std::back_inserter(out),
                   "],\"normalizer\":{},\"pre_tokenizer\":{},\"post_processor\":{},",
                   dump_json(pre.normalizer), dump_json(pre.pre_tokenizer),
                   dump_json(post_processor(pre.adds_bos)));
    fmt::format_to(std::back_inserter(out),
                   "\"decoder\":{{\"type\":\"ByteLevel\"}},\"model\":{{\"type\":\"BPE\",\"ignore_"
                   "merges\":{},\"vocab\":{{",
                   pre.ignore_merges);
    comma = "";
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      out += comma;
      append_quoted(out, tokens_[i]);
      fmt::format_to(std::back_inserter(out), ":{}", i);
      comma = ",";
    }
    out += "},\"merges\":[";
    comma = "";
    for (const std::string_view merge : strings("merges")) {
      out += comma;
      append_quoted(out, merge);
      comma = ",";
    }
    out += "]}}";
  }

  // Tokens before and after a text.
  Json post_processor(bool adds_bos) const {
    Json single = Json::array(), special = Json::object();
    const auto add = [&](const char* name) {
      const auto id = token_id(name);
      require(id.has_value(),
              "{}: the key {} is missing or no id of a token, but the tokenizer adds that token",
              file_.name(), key(name));
      const std::string text(tokens_[static_cast<std::size_t>(*id)]);
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special[text] = {{"id", text}, {"ids", Json::array({*id})}, {"tokens", Json::array({text})}};
    };
    const bool has_bos =
        gguf_token_id(file_, "bos_token_id", static_cast<std::int64_t>(tokens_.size())).has_value();
    if (file_.find_bool(key("add_bos_token")).value_or(adds_bos && has_bos)) add("bos_token_id");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (file_.find_bool(key("add_eos_token")).value_or(false)) add("eos_token_id");
    if (single.size() == 1) return {};
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"special_tokens", std::move(special)}};
  }

  void read_templates(GgufText& out) const {
    const std::string base = "tokenizer.chat_template";
    if (const auto text = file_.find_string(base)) out.chat_templates["default"] = *text;
    for (const std::string_view name :
         file_.find_strings("tokenizer.chat_templates").value_or(std::vector<std::string_view>{}))
      if (const auto text = file_.find_string(base + '.' + std::string(name)))
        out.chat_templates.emplace(std::string(name), *text);
    if (!out.chat_templates.empty())
      out.chat_templates.emplace("default", out.chat_templates.begin()->second);
  }

  const GgufFile& file_;
  std::vector<std::string_view> tokens_;
  std::vector<std::int64_t> types_;
};

}  // namespace

GgufText read_gguf_text(const std::string& path) {
  const GgufFile file(open_regular_file(path), path);
  return read_gguf_text(file);
}

GgufText read_gguf_text(const GgufFile& file) {
  return TextReader(file).run();
}

}  // namespace sluice
