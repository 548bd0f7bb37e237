#include "text/grammar/schema/schema_strings.h"

#include "text/grammar/schema/formats.h"

namespace sluice::grammar {

Result<SchemaLanguages> SchemaLanguages::compile(const SchemaGraph& graph, Languages& languages,
                                                 bool assert_formats) {
  SchemaLanguages out;
  out.languages_ = &languages;
  out.asserts_formats_ = assert_formats;
  for (const SchemaPattern& pattern : graph.patterns) {
    const Result<LanguageId> language = languages.regex(
        pattern.text, {.match = RegexMatch::kSearch, .dialect = RegexDialect::kEcma});
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

SchemaLanguages SchemaLanguages::over(Languages& clone) const {
  SchemaLanguages out = *this;
  out.languages_ = &clone;
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
  if (format == "regex" && asserts_formats_) {
    // A construct that is not supported here may still be a regular expression.
    const Result<LanguageId> read = Languages().regex(text, {.dialect = RegexDialect::kEcma});
    return read.ok() || read.fault().code != "invalid_regex";
  }
  const LanguageId* language = this->format(format);
  if (language == nullptr) return true;
  const std::uint64_t max = format_max_length(format);
  return (max == kUnbounded || count_characters(text) <= max) &&
         languages_->contains(*language, text);
}

}  // namespace sluice::grammar
