// Regular languages over Unicode code points: expressions with intersection and complement, and
// their automata, built lazily by derivatives.
//
//   Languages languages(budget);
//   const LanguageId keys = languages.literals({"name", "age"});
//   const LanguageId others = languages.complement(keys);
//   Result<LanguageId> words = languages.regex("^[a-z]+$", {.match = RegexMatch::kSearch});
//   const LanguageId both = languages.intersect({others, words.value()});
//   Result<bool> nothing = languages.is_empty(both);
//
// A language holds texts: sequences of code points without surrogates. How a text is spelled, as
// UTF-8 or inside a JSON string, is the matter of the grammar's node (grammar.h).
//
// Expressions are interned: equal ids are equal languages (the reverse need not hold). An
// expression costs a few words, also repeat(r, 0, 10'000'000): counts are never unrolled. States of
// automata are expressions again (Brzozowski 1964; Owens, Reppy, Turon 2009, "Regular-expression
// derivatives re-examined").
//
// One thread at a time. When the budget is used up, functions that return an id return none(), and
// is_exhausted() stays true: finish() of a grammar then refuses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "text/grammar/budget.h"

namespace sluice::grammar {

inline constexpr std::uint64_t kUnbounded = ~std::uint64_t{0};

// Also a state of the language's automaton: what may still follow.
enum class LanguageId : std::uint32_t {};

// The code points first to last, both included.
struct CodeRange {
  char32_t first = 0, last = 0;
};

enum class RegexMatch {
  kFull,    // the whole text matches
  kSearch,  // some part of the text matches, as JSON Schema's `pattern` and `patternProperties`
};

enum class RegexDialect {
  kPython,  // '.' is any character but \n
  kEcma,    // '.' is any character but \n, \r, U+2028, U+2029
};

struct RegexOptions {
  RegexMatch match = RegexMatch::kFull;
  RegexDialect dialect = RegexDialect::kPython;
};

class LanguageStore;
class TextAutomaton;

class Languages {
 public:
  explicit Languages(const Budget& budget = {});
  ~Languages();
  Languages(Languages&&) noexcept;
  Languages& operator=(Languages&&) noexcept;
  // A copy shares nothing with the original.
  Languages clone() const;

  LanguageId none();        // no text
  LanguageId empty_text();  // the text of no characters
  LanguageId any_char();    // one code point
  LanguageId any_text();    // every text
  // One code point out of ranges in any order; surrogates are left out.
  LanguageId chars(std::span<const CodeRange> ranges);
  // One text. Invalid UTF-8 is read as U+FFFD.
  LanguageId literal(std::string_view utf8);
  // Any of the texts; costs the bytes of all, and one look-up a character when matched.
  LanguageId literals(std::span<const std::string> utf8);
  LanguageId concat(std::span<const LanguageId> parts);
  LanguageId alternate(std::span<const LanguageId> parts);
  LanguageId intersect(std::span<const LanguageId> parts);
  LanguageId concat(std::initializer_list<LanguageId> parts);
  LanguageId alternate(std::initializer_list<LanguageId> parts);
  LanguageId intersect(std::initializer_list<LanguageId> parts);
  // Every text that is not in `of`.
  LanguageId complement(LanguageId of);
  // From min to max (kUnbounded: no bound) texts of `of` in a row; min <= max.
  LanguageId repeat(LanguageId of, std::uint64_t min, std::uint64_t max);
  // The texts of an automaton (text_automaton.h), from its begin() on.
  LanguageId automaton(std::shared_ptr<const TextAutomaton> automaton);
  // `pattern` as regex.h describes it. Fault `invalid_regex` or `unsupported_regex`: the message
  // names the construct and its position in characters. A pattern that was read before costs a
  // look-up.
  Result<LanguageId> regex(std::string_view pattern, const RegexOptions& options = {});

  // Questions. They explore automata within the budget. Fault `grammar_too_large` otherwise.
  Result<bool> is_empty(LanguageId language);
  bool contains(LanguageId language, std::string_view utf8);
  bool contains_empty(LanguageId language);
  // The number of code points of the shortest text; kUnbounded if there is none.
  Result<std::uint64_t> shortest(LanguageId language);
  // Whether a text of min to max code points is in the language.
  Result<bool> has_length(LanguageId language, std::uint64_t min, std::uint64_t max);
  // A text of the language, of the fewest code points. Fault `empty_language` if there is none.
  Result<std::string> example(LanguageId language);

  bool is_exhausted() const;
  std::uint64_t bytes() const;
  const Budget& budget() const;

  // For the matcher.
  LanguageStore& store() { return *store_; }

 private:
  std::unique_ptr<LanguageStore> store_;
  std::unordered_map<std::string, LanguageId> regexes_;  // by options and pattern
  std::size_t regex_bytes_ = 0;
};

}  // namespace sluice::grammar
