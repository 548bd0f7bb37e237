#include "server/api/answer_captures.h"

#include <algorithm>
#include <utility>

#include "server/api/text_offsets.h"
#include "server/core/errors.h"
#include "server/core/grammars.h"
#include "text/unicode.h"

namespace sluice {
namespace {

using grammar::CaptureReader;
using grammar::Vocabulary;

// The bytes of an answer as its grammar reads them, and as a client sees them.
class AnswerText {
 public:
  // Special tokens are shown where `shows_special`, or if they are of `kept`.
  AnswerText(const Tokenizer& tokenizer, const Vocabulary& vocabulary, bool shows_special,
             const std::vector<std::int32_t>& kept)
      : tokenizer_(tokenizer),
        vocabulary_(vocabulary),
        shows_special_(shows_special),
        kept_(kept) {}

  void add(std::int32_t token) {
    const std::string_view bytes = vocabulary_.bytes(token);
    read_ += bytes;
    if (vocabulary_.is_text(token)) {
      for (const char c : bytes) {
        shown_ += c;
        places_.push_back(shown_.size());
      }
      return;
    }
    // the token's own text stands behind the byte that marks it
    const bool is_shown = shows_special_ || !tokenizer_.is_special(token) ||
                          std::ranges::find(kept_, token) != kept_.end();
    if (!bytes.empty() && is_shown) shown_ += bytes.substr(1);
    places_.resize(read_.size(), shown_.size());
  }

  const std::string& read() const { return read_; }
  // What is shown of the bytes [begin, end) that are read.
  std::string_view shown(std::size_t begin, std::size_t end) const {
    const std::size_t first = place(begin);
    return std::string_view(shown_).substr(first, place(end) - first);
  }

 private:
  std::size_t place(std::size_t at) const { return at == 0 ? 0 : places_[at - 1]; }

  const Tokenizer& tokenizer_;
  const Vocabulary& vocabulary_;
  const bool shows_special_;
  const std::vector<std::int32_t>& kept_;
  std::string read_, shown_;
  std::vector<std::size_t> places_;  // in shown_, behind each byte of read_
};

Json captures_json(const CaptureReader& reader, const AnswerText& text, std::size_t shown,
                   bool has_end) {
  Result<CaptureReader::Found> found = reader.read(text.read(), has_end);
  // a stop token that is text cuts, too
  if (!found && has_end) found = reader.read(text.read(), false);
  if (!found) return nullptr;
  Json list = Json::array();
  const std::size_t before = num_characters(text.shown(0, found->answer_begin));
  for (const grammar::Capture& one : found->captures) {
    const std::string_view shown_text = text.shown(one.begin, one.end);
    const std::size_t start = num_characters(text.shown(0, one.begin));
    const std::size_t end = start + num_characters(shown_text);
    if (end > shown) continue;  // a stop string has cut it
    list.push_back({{"name", reader.name(one)},
                    {"text", to_valid_utf8(shown_text)},
                    {"start", start - std::min(start, before)},
                    {"end", end - std::min(end, before)}});
  }
  return list;
}

}  // namespace

std::optional<Fault> add_captures(const ServedModel& model, const HttpRequest& request,
                                  const GenerationFields& fields, GenerationPlan& plan) {
  if (!fields.return_captures.value_or(false)) return std::nullopt;
  if (!fields.grammar)
    return invalid_value("return_captures",
                         "`return_captures` needs a grammar whose parts have names, such as "
                         "`regex` with (?P<name>...).");
  auto reader = model.grammars->captures(fields.grammar->source, request.why_unwanted);
  if (!reader) {
    Fault fault = reader.fault();
    fault.param = fault.code.ends_with("captures") ? "return_captures" : fields.grammar->param;
    fault.message = fmt::format("`{}`: {}", fault.param, fault.message);
    return fault;
  }
  plan.captures = [reader = std::move(*reader), tokenizer = model.tokenizer,
                   vocabulary = model.grammars->vocabulary(),
                   shows_special = !plan.skip_special_tokens](std::span<const std::int32_t> tokens,
                                                              const std::vector<std::int32_t>& kept,
                                                              std::size_t shown, bool has_end) {
    AnswerText text(*tokenizer, *vocabulary, shows_special, kept);
    for (const std::int32_t token : tokens) text.add(token);
    return captures_json(*reader, text, shown, has_end);
  };
  return std::nullopt;
}

}  // namespace sluice
