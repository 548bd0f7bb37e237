#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/text_growth.h"
#include "text/tokenizer/normalizer.h"
#include "text/unicode.h"

namespace sluice {
namespace {

struct Segment {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

// Covers `text` by segments in order: matches, and the text between matches.
class Segmenter {
 public:
  Segmenter(const PreTokenizerStep& step, SplitRegex::Scratch& scratch)
      : step_(step), scratch_(scratch) {}

  const std::vector<Segment>& run(std::string_view text) {
    segments_.clear();
    covered_ = 0;
    switch (step_.kind) {
      case PreTokenizerStep::kSplitRegex:
        find_regex(text);
        break;
      case PreTokenizerStep::kSplitLiteral:
        find_literal(text);
        break;
      case PreTokenizerStep::kSplitTokens:
        find_tokens(text);
        break;
      default:
        find_class(text);
        break;
    }
    if (covered_ != text.size()) segments_.push_back({covered_, text.size(), false});
    if (step_.invert)
      for (Segment& segment : segments_) segment.is_match = !segment.is_match;
    return segments_;
  }

 private:
  void add(std::size_t begin, std::size_t end) {
    if (covered_ != begin) segments_.push_back({covered_, begin, false});
    segments_.push_back({begin, end, true});
    covered_ = end;
  }

  void find_regex(std::string_view text) {
    SplitRegex::Match match;
    for (std::size_t from = 0;
         from < text.size() && step_.regex->find(text, from, scratch_, match);) {
      add(match.begin, match.end);
      from = match.end;
      if (match.begin == match.end && from < text.size())
        from += utf8_length(static_cast<unsigned char>(text[from]));
    }
  }

  void find_literal(std::string_view text) {
    if (step_.literal.empty()) return;
    for (std::size_t from = 0; (from = text.find(step_.literal, from)) != std::string_view::npos;) {
      add(from, from + step_.literal.size());
      from += step_.literal.size();
    }
  }

  void find_tokens(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = step_.tokens->longest(text.substr(at)).length;
      if (length > 0) add(at, at + length);
      at += length > 0
                ? length
                : static_cast<std::size_t>(utf8_length(static_cast<unsigned char>(text[at])));
    }
  }

  void find_class(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      int size = 0;
      if (step_.is_member(decode_utf8(text.substr(at), size))) add(at, at + size);
      at += size;
    }
  }

  const PreTokenizerStep& step_;
  SplitRegex::Scratch& scratch_;
  std::vector<Segment> segments_;
  std::size_t covered_ = 0;
};

// Appends the pieces that `behavior` makes of `segments`; their offsets are relative to `base`.
void join(const std::vector<Segment>& segments, SplitBehavior behavior, std::size_t base,
          std::vector<Pieces::Span>& out) {
  const auto emit = [&](std::size_t begin, std::size_t end) {
    if (begin != end) out.push_back({base + begin, base + end});
  };
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
    for (const Segment& segment : segments)
      if (!segment.is_match || behavior == SplitBehavior::kIsolated)
        emit(segment.begin, segment.end);
    return;
  }
  // A match is merged with the segment on one side unless that is a match too. In a run of matches
  // only one has a partner.
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::size_t begin = segments[i].begin;
    const auto joins_next = [&](std::size_t k) {
      if (k + 1 >= segments.size()) return false;
      const bool here = segments[k].is_match, next = segments[k + 1].is_match;
      switch (behavior) {
        case SplitBehavior::kContiguous:
          return here == next;
        case SplitBehavior::kMergedWithPrevious:
          return !here && next;
        default:
          return here && !next;
      }
    };
    while (joins_next(i)) ++i;
    emit(begin, segments[i].end);
  }
}

std::string with_metaspaces(std::string_view piece, const PreTokenizerStep& step, bool first) {
  std::string out = replace_all(piece, " ", step.literal);
  const bool wanted = step.prepend == PreTokenizerStep::kAlways ||
                      (step.prepend == PreTokenizerStep::kFirst && first);
  if (wanted && !out.starts_with(step.literal)) out.insert(0, step.literal);
  return out;
}

std::string rewrite(std::string_view piece, const PreTokenizerStep& step, bool first) {
  switch (step.kind) {
    case PreTokenizerStep::kPrefixSpace:
      return std::string(piece.starts_with(' ') ? "" : " ").append(piece);
    case PreTokenizerStep::kMetaspace:
      return with_metaspaces(piece, step, first);
    default:
      return to_byte_alphabet(piece);
  }
}

void rewrite_pieces(const PreTokenizerStep& step, bool at_start, Pieces& pieces) {
  std::string text;
  text.reserve(pieces.text.size() * 2);
  for (std::size_t i = 0; i < pieces.spans.size(); ++i) {
    const bool first = at_start && pieces.spans[i].begin == 0;
    const std::string rewritten = rewrite(pieces[i], step, first);
    pieces.spans[i] = {text.size(), text.size() + rewritten.size()};
    text += rewritten;
  }
  pieces.text = std::move(text);
}

bool is_split(const PreTokenizerStep& step) {
  return step.kind <= PreTokenizerStep::kSplitTokens;
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {
  if (!steps_.empty() && steps_.back().kind == PreTokenizerStep::kByteAlphabet) {
    steps_.pop_back();
    ends_in_byte_alphabet_ = true;
  }
}

bool PreTokenizer::drops_text() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const PreTokenizerStep& step) {
    return is_split(step) && step.behavior == SplitBehavior::kRemoved;
  });
}

void PreTokenizer::keep_byte_alphabet() {
  if (!std::exchange(ends_in_byte_alphabet_, false)) return;
  steps_.emplace_back();
  steps_.back().kind = PreTokenizerStep::kByteAlphabet;
}

void PreTokenizer::split(std::string_view text, bool at_start, SplitRegex::Scratch& scratch,
                         Pieces& out) const {
  out.text.assign(text);
  out.spans.clear();
  if (text.empty()) return;
  out.spans.push_back({0, text.size()});
  std::vector<Pieces::Span> spans;
  for (const PreTokenizerStep& step : steps_) {
    if (!is_split(step)) {
      rewrite_pieces(step, at_start, out);
      check_growth(text.size(), out.text.size());
      continue;
    }
    spans.clear();
    Segmenter segmenter(step, scratch);
    for (std::size_t i = 0; i < out.spans.size(); ++i)
      join(segmenter.run(out[i]), step.behavior, out.spans[i].begin, spans);
    out.spans.swap(spans);
  }
}

}  // namespace sluice
