// The regular expressions of tokenizer files, run by PCRE2.
//
// Tokenizer files are written for Oniguruma, and patterns are translated to PCRE2 at load. The
// dialects differ in four points:
// - \s is White_Space (PCRE2 adds U+180E);
// - \p{Han} means the script (PCRE2: script extensions);
// - `&&` intersects character classes (PCRE2 has no such operator);
// - ^ and $ match at every line.
//
// A pattern comes from the model's file, the text from any client. A pattern whose backtracking
// exceeds the square of the text length is refused at load, by counting steps on probe texts. A
// quadratic pattern runs with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace sluice {

class SplitRegex {
 public:
  // Working memory of one thread. Cheap to create; it serves any number of expressions.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class SplitRegex;
    struct State;
    std::unique_ptr<State> state_;
  };

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // `what` names the file and field in errors. Error{kBadInput}: invalid or catastrophic pattern.
  SplitRegex(std::string_view pattern, std::string_view what);
  ~SplitRegex();
  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;

  // Finds the first match that begins at `from` or later in valid UTF-8. Any thread, each with its
  // own Scratch. Error{kBadInput} when the text is too hard for the pattern (time or match limits).
  bool find(std::string_view text, std::size_t from, Scratch& scratch, Match& match) const;

  bool is_superlinear() const { return superlinear_; }

 private:
  struct Code;
  bool find_within_deadline(std::string_view text, std::size_t from, Scratch& scratch,
                            Match& match) const;
  void probe(std::string_view translated);

  std::string what_;
  std::unique_ptr<Code> code_;
  bool superlinear_ = false;
};

// The pattern in PCRE2's dialect; exposed for tests. Error{kBadInput} on what cannot be translated.
std::string translate_oniguruma(std::string_view pattern, std::string_view what);

}  // namespace sluice
