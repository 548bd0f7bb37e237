#include "text/tokenizer/tokenizer_oracle.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/detokenizer.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxMessages = 20;

using Ids = std::vector<std::int32_t>;

const Json& member(const Json& object, const char* key, std::size_t index) {
  const auto found = object.find(key);
  require(object.is_object() && found != object.end(), "oracle: cases[{}].{} is missing", index,
          key);
  return *found;
}

// Keeps the first `characters` code points.
void truncate(std::string& text, std::int64_t characters) {
  std::size_t at = 0;
  for (; characters > 0 && at < text.size(); --characters)
    at += utf8_length(static_cast<unsigned char>(text[at]));
  text.resize(at);
}

class CaseCheck {
 public:
  CaseCheck(const Tokenizer& tokenizer, const Json& record, const std::string& kind,
            std::size_t index)
      : tokenizer_(tokenizer), record_(record), kind_(kind), index_(index) {}

  std::vector<std::string> run() {
    const auto text = member(record_, "text", index_).get<std::string>();
    const auto ids = member(record_, "ids", index_).get<Ids>();
    const auto decoded = member(record_, "decoded", index_).get<std::string>();
    const bool library = kind_ == "tokenizer.json";
    expect_ids("ids",
               tokenizer_.encode(text, {.add_special_tokens = false, .parse_special = library}),
               ids);
    expect_text("decoded", tokenizer_.decode(ids, false), decoded);
    if (library)
      check_special(text);
    else if (kind_ == "sentencepiece")
      check_pieces(ids);
    else if (kind_ == "tekken")
      check_tekken(text, ids);
    else
      check_tiktoken(text, ids);
    check_prefixes(ids);
    if (library) check_reference_stream(decoded);
    check_stream(ids, decoded);
    return std::move(messages_);
  }

 private:
  void expect_ids(const char* what, const Ids& got, const Ids& wanted) {
    if (got != wanted)
      messages_.push_back(fmt::format("case {}: {} of {}: got [{}], expected [{}]", index_, what,
                                      dump_json(record_["text"]), fmt::join(got, ","),
                                      fmt::join(wanted, ",")));
  }
  void expect_text(const std::string& what, const std::string& got, const std::string& wanted) {
    if (got != wanted)
      messages_.push_back(fmt::format("case {}: {}: got {}, expected {}", index_, what,
                                      dump_json(Json(got)), dump_json(Json(wanted))));
  }

  void check_special(const std::string& text) {
    const auto with_special = member(record_, "ids_with_special", index_).get<Ids>();
    expect_ids("ids_with_special", tokenizer_.encode(text, {.add_special_tokens = true}),
               with_special);
    expect_text("decoded_skip_special", tokenizer_.decode(with_special, true),
                member(record_, "decoded_skip_special", index_).get<std::string>());
  }

  // The piece of an unknown id is its text in the input; all other pieces have the vocabulary's
  // spelling.
  void check_pieces(const Ids& ids) {
    const auto pieces = member(record_, "pieces", index_).get<std::vector<std::string>>();
    require(pieces.size() == ids.size(), "oracle: cases[{}].pieces must have one entry for each id",
            index_);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (tokenizer_.token_id(pieces[i]).has_value())
        expect_text(fmt::format("piece {}", i), tokenizer_.token_text(ids[i]), pieces[i]);
  }

  void check_tiktoken(const std::string& text, const Ids& ids) {
    expect_ids("ids_allowed_special", tokenizer_.encode(text, {.add_special_tokens = false}),
               member(record_, "ids_allowed_special", index_).get<Ids>());
    check_bytes(ids);
  }

  void check_tekken(const std::string& text, const Ids& ids) {
    expect_ids("ids_with_bos",
               tokenizer_.encode(text, {.add_special_tokens = true, .parse_special = false}),
               member(record_, "ids_with_bos", index_).get<Ids>());
    check_bytes(ids);
  }

  void check_bytes(const Ids& ids) {
    std::string bytes;
    for (const std::int32_t id : ids) bytes += tokenizer_.token_bytes_view(id);
    const auto wanted =
        decode_base64(member(record_, "decoded_bytes_b64", index_).get<std::string>());
    require(wanted.has_value(), "oracle: cases[{}].decoded_bytes_b64 is not base64", index_);
    if (bytes != *wanted)
      messages_.push_back(fmt::format("case {}: the bytes of the tokens differ", index_));
  }

  void check_prefixes(const Ids& ids) {
    const Json& prefixes = member(record_, "prefix_decodes", index_);
    require(prefixes.is_array() && prefixes.size() == ids.size(),
            "oracle: cases[{}].prefix_decodes must have one entry for each id", index_);
    std::string wanted;
    for (std::size_t k = 0; k < ids.size(); ++k) {
      truncate(wanted, prefixes[k].at(0).get<std::int64_t>());
      wanted += prefixes[k].at(1).get<std::string>();
      expect_text(fmt::format("prefix {}", k + 1),
                  tokenizer_.decode(std::span(ids).first(k + 1), false), wanted);
    }
  }

  // The reference holds back a text that ends inside a character; it has no flush.
  void check_reference_stream(const std::string& decoded) {
    std::string reference;
    for (const Json& piece : member(record_, "stream", index_))
      if (!piece.is_null()) reference += piece.get<std::string>();
    if (!decoded.starts_with(reference))
      messages_.push_back(fmt::format(
          "case {}: the oracle's own stream is not how its decoded text begins", index_));
  }

  void check_stream(const Ids& ids, const std::string& decoded) {
    Detokenizer detokenizer(tokenizer_, false);
    std::string streamed;
    for (std::size_t k = 0; k < ids.size(); ++k) {
      streamed += detokenizer.push(ids[k]);
      // A prefix of the final text cannot hold anything that is revoked later.
      if (!decoded.starts_with(streamed))
        messages_.push_back(fmt::format("case {}: stream: {} after {} ids is not how {} begins",
                                        index_, dump_json(Json(streamed)), k + 1,
                                        dump_json(Json(decoded))));
    }
    streamed += detokenizer.finish();
    expect_text("stream", streamed, decoded);
  }

  const Tokenizer& tokenizer_;
  const Json& record_;
  const std::string& kind_;
  std::size_t index_;
  std::vector<std::string> messages_;
};

}  // namespace

OracleReport check_tokenizer_oracle(const Tokenizer& tokenizer, const Json& oracle) {
  require(oracle.is_object() && oracle.contains("cases") && oracle["cases"].is_array(),
          "oracle: cases is missing");
  const std::string kind = oracle.value("kind", "");
  require(
      kind == "tokenizer.json" || kind == "sentencepiece" || kind == "tiktoken" || kind == "tekken",
      "oracle: kind \"{}\" is not one of tokenizer.json, sentencepiece, tiktoken, tekken", kind);
  OracleReport report;
  if (const auto specials = oracle.find("special_tokens"); specials != oracle.end())
    for (const auto& [id, text] : specials->items())
      if (tokenizer.token_id(text.get<std::string>()) != std::optional(std::atoi(id.c_str())))
        report.messages.push_back(fmt::format("special token {} is not {}", dump_json(text), id));
  report.failures += report.messages.empty() ? 0 : 1;
  for (const Json& record : oracle["cases"]) {
    std::vector<std::string> messages;
    try {
      messages = CaseCheck(tokenizer, record, kind, static_cast<std::size_t>(report.cases)).run();
    } catch (const Json::exception&) {
      fail(ErrorKind::kBadInput, "oracle: cases[{}] has a member of the wrong type", report.cases);
    }
    ++report.cases;
    if (!messages.empty()) ++report.failures;
    for (std::string& message : messages)
      if (report.messages.size() < kMaxMessages) report.messages.push_back(std::move(message));
  }
  return report;
}

}  // namespace sluice
