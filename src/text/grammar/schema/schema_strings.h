// The patterns and formats of a schema as languages.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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

// The same tests with languages of its own, each made when it is first asked for: a validator may
// need none of them. One thread; `graph` outlives this object.
class LazySchemaStrings : public SchemaStrings {
 public:
  LazySchemaStrings(const SchemaGraph& graph, bool assert_formats)
      : graph_(graph), asserts_formats_(assert_formats) {}

  bool has_match(int pattern, std::string_view text) const override;
  bool has_format(std::string_view format, std::string_view text) const override;
  bool ran_out() const override { return std::exchange(ran_out_, false); }

 private:
  // Notes whether the test that gave the answer has come to its end.
  bool noted(bool answer) const {
    ran_out_ = ran_out_ || languages_.is_exhausted();
    return answer;
  }
  // Begins anew where the automata of many texts have used the budget up.
  Languages& languages() const;

  const SchemaGraph& graph_;
  const bool asserts_formats_;
  mutable Languages languages_;
  mutable bool ran_out_ = false;
};

}  // namespace sluice::grammar
