// The patterns and formats of a schema as languages.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/languages.h"
#include "text/grammar/schema/validator.h"

namespace sluice::grammar {

class SchemaLanguages : public SchemaStrings {
 public:
  // Compiles every pattern and format of `graph`. `languages` outlives this object, and one thread
  // uses both. Without `assert_formats` no format constrains. Faults name the pattern's pointer.
  static Result<SchemaLanguages> compile(const SchemaGraph& graph, Languages& languages,
                                         bool assert_formats);
  // The same ids over a clone of the languages.
  SchemaLanguages over(Languages& clone) const;

  bool asserts_formats() const { return asserts_formats_; }
  LanguageId pattern(int place) const { return patterns_[static_cast<std::size_t>(place)]; }
  // Null for a format that is not asserted.
  const LanguageId* format(std::string_view name) const;

  bool has_match(int pattern, std::string_view text) const override;
  bool has_format(std::string_view format, std::string_view text) const override;

 private:
  Languages* languages_ = nullptr;
  bool asserts_formats_ = false;
  std::vector<LanguageId> patterns_;
  std::unordered_map<std::string, LanguageId> formats_;
};

}  // namespace sluice::grammar
