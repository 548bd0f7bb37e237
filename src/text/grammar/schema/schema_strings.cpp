#include "text/grammar/schema/schema_strings.h"

#include "text/grammar/language_store.h"
#include "text/grammar/schema/formats.h"

namespace sluice::grammar {
namespace {

constexpr RegexOptions kPatternOptions{.match = RegexMatch::kSearch,
                                       .dialect = RegexDialect::kEcma};

// The format `regex`: a construct that is not supported here may still be a regular expression.
bool is_regex(std::string_view text) {
  const Result<LanguageId> read = Languages().regex(text, {.dialect = RegexDialect::kEcma});
  return read.ok() || read.fault().code != "invalid_regex";
}

bool is_in_format(Languages& languages, LanguageId language, std::string_view format,
                  std::string_view text) {
  const std::uint64_t max = format_max_length(format);
  return (max == kUnbounded || count_characters(text) <= max) && languages.contains(language, text);
}

}  // namespace

Result<SchemaLanguages> SchemaLanguages::compile(const SchemaGraph& graph, Languages& languages,
                                                 bool assert_formats) {
  SchemaLanguages out;
  out.languages_ = &languages;
  out.asserts_formats_ = assert_formats;
  for (const SchemaPattern& pattern : graph.patterns) {
    const Result<LanguageId> language = languages.regex(pattern.text, kPatternOptions);
    if (!language) {
      const Fault& fault = language.fault();
      const bool is_invalid = fault.code == "invalid_regex";
      return schema_fault(is_invalid ? "invalid_json_schema" : "unsupported_json_schema",
                          graph.json.pointer(pattern.at), fault.message);
    }
    out.patterns_.push_back(*language);
  }
  if (!assert_formats) return out;
  for (const Schema& schema : graph.schemas) {
    if (!schema.string || schema.string->format.empty()) continue;
    if (out.formats_.contains(schema.string->format)) continue;
    if (const auto language = format_language(languages, schema.string->format)) {
      out.formats_.emplace(schema.string->format, *language);
    }
  }
  return out;
}

const LanguageId* SchemaLanguages::format(std::string_view name) const {
  const auto found = formats_.find(std::string(name));
  return found == formats_.end() ? nullptr : &found->second;
}

bool SchemaLanguages::has_match(int pattern, std::string_view text) const {
  return languages_->contains(this->pattern(pattern), text);
}

bool SchemaLanguages::has_format(std::string_view format, std::string_view text) const {
  if (format == "regex" && asserts_formats_) return is_regex(text);
  const LanguageId* language = this->format(format);
  return language == nullptr || is_in_format(*languages_, *language, format, text);
}

Languages& LazySchemaStrings::languages() const {
  const Budget& budget = languages_.budget();
  languages_.store().restart_work(budget.max_work);
  if (languages_.is_exhausted() || languages_.bytes() > budget.max_bytes / 2)
    languages_ = Languages();
  return languages_;
}

bool LazySchemaStrings::has_match(int pattern, std::string_view text) const {
  Languages& languages = this->languages();
  const std::string& spelling = graph_.patterns[static_cast<std::size_t>(pattern)].text;
  const Result<LanguageId> language = languages.regex(spelling, kPatternOptions);
  check(language.ok(), "a pattern that compiled once does not compile again");
  return noted(languages.contains(*language, text));
}

bool LazySchemaStrings::has_format(std::string_view format, std::string_view text) const {
  if (!asserts_formats_) return true;
  if (format == "regex") return is_regex(text);
  Languages& languages = this->languages();
  const auto language = format_language(languages, format);
  return noted(!language || is_in_format(languages, *language, format, text));
}

}  // namespace sluice::grammar
