// Stop strings: by token on the engine thread, by text on the server.
//
// Both see the text of the same Detokenizer, so they agree on the token that completes a match. The
// match that ends first counts; if several end at one byte, the longest counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/detokenizer.h"

namespace sluice {

// Runs several strings over a text at once, each by its own failure table (Knuth, Morris, Pratt
// 1977).
class StopStrings {
 public:
  // None may be empty.
  explicit StopStrings(std::vector<std::string> strings);

  // Takes one byte; the index of the longest string that ends with it, or -1. O(number of strings)
  // amortised.
  int push(char byte);
  // The length of the longest suffix of the text so far that is a proper prefix of a string.
  std::size_t num_held() const;
  const std::string& string(int index) const {
    return patterns_[static_cast<std::size_t>(index)].text;
  }

 private:
  struct Pattern {
    std::string text;
    // by matched length: the next shorter length that still matches
    std::vector<std::uint32_t> fallback;
    std::size_t matched = 0;
  };
  std::vector<Pattern> patterns_;
};

// Tells the scheduler which token ends a sequence. One thread; copies are independent (for a forked
// sequence).
class StopStringMatcher {
 public:
  // `skip_special_tokens` is the request's, so that matching sees the text that is sent.
  StopStringMatcher(const Tokenizer& tokenizer, std::vector<std::string> strings,
                    bool skip_special_tokens)
      : detokenizer_(tokenizer, skip_special_tokens), strings_(std::move(strings)) {}

  // Takes the next token; true when the token completes a stop string. Calls may continue after an
  // ignored match.
  bool push(std::int32_t token);

 private:
  Detokenizer detokenizer_;
  StopStrings strings_;
};

// Cuts a stream of text at a stop string. One thread.
class StopFilter {
 public:
  // `include_stop`: the stop string itself is text (include_stop_str_in_output, no_stop_trim).
  StopFilter(std::vector<std::string> strings, bool include_stop)
      : strings_(std::move(strings)), include_stop_(include_stop) {}

  // Takes a piece of text and returns the part that may be sent: nothing that could begin a stop
  // string, nothing after one. A match completed while `may_stop` is false (min_tokens) is ordinary
  // text.
  std::string push(std::string_view text, bool may_stop = true);
  // The end of the text: returns the held text.
  std::string flush();

  bool stopped() const { return matched_ >= 0; }
  // The stop string that matched; empty before a match.
  std::string_view matched() const {
    return stopped() ? std::string_view(strings_.string(matched_)) : std::string_view();
  }

 private:
  StopStrings strings_;
  bool include_stop_;
  int matched_ = -1;
  std::string held_;
};

}  // namespace sluice
