// The filter wordwrap: Python's textwrap, a paragraph a line of the text.
#include <algorithm>

#include "text/jinja/filters_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja::filters {
namespace {

using Code = std::uint32_t;
using Codes = std::vector<Code>;

bool is_blank(Code code) {
  return code == ' ' || (code >= '\t' && code <= '\r');
}
bool is_word(Code code) {
  return code == '_' || is_alpha(code) || is_numeric(code);
}
bool is_letter(Code code) {
  return is_word(code) && !is_decimal(code);
}
bool is_word_or_mark(Code code) {
  return is_word(code) ||
         (code < 128 &&
          std::string_view("!\"'&.,?").find(static_cast<char>(code)) != std::string_view::npos);
}

// Cuts a paragraph into words, runs of white space and dashes, and after the hyphens of words.
class Chunks {
 public:
  explicit Chunks(const Codes& text, bool hyphens) : text_(text), hyphens_(hyphens) {}

  std::vector<Codes> run() const {
    std::vector<Codes> out;
    for (std::size_t pos = 0; pos < text_.size();) {
      const std::size_t end = end_at(pos);
      out.emplace_back(text_.begin() + static_cast<std::ptrdiff_t>(pos),
                       text_.begin() + static_cast<std::ptrdiff_t>(end));
      pos = end;
    }
    return out;
  }

 private:
  Code at(std::size_t i) const { return i < text_.size() ? text_[i] : ' '; }
  bool is_letter_at(std::size_t i) const { return i < text_.size() && is_letter(text_[i]); }

  // The end of two or more dashes that begin at `i` before a word; `i` if there are none.
  std::size_t dashes(std::size_t i) const {
    std::size_t end = i;
    while (end < text_.size() && text_[end] == '-') ++end;
    return end >= i + 2 && end < text_.size() && is_word(text_[end]) ? end : i;
  }

  bool is_hyphen(std::size_t i) const {
    if (text_[i] != '-') return false;
    const bool after =
        (i >= 2 && is_letter_at(i - 1) && is_letter_at(i - 2)) ||
        (i >= 3 && is_letter_at(i - 3) && text_[i - 2] == '-' && is_word_or_mark(text_[i - 1]));
    return after && is_letter_at(i + 1) &&
           (is_letter_at(i + 2) || (at(i + 2) == '-' && is_letter_at(i + 3)));
  }

  std::size_t end_at(std::size_t pos) const {
    std::size_t end = pos + 1;
    if (is_blank(text_[pos]) || !hyphens_) {
      while (end < text_.size() && is_blank(text_[end]) == is_blank(text_[pos])) ++end;
      return end;
    }
    if (pos > 0 && is_word_or_mark(text_[pos - 1]) && dashes(pos) > pos) return dashes(pos);
    for (; end < text_.size() && !is_blank(text_[end]); ++end) {
      if (is_hyphen(end)) return end + 1;
      if (is_word_or_mark(text_[end - 1]) && dashes(end) > end) return end;
    }
    return end;
  }

  const Codes& text_;
  bool hyphens_;
};

struct Style {
  std::size_t width;
  bool break_words, hyphens;
};

bool is_white(const Codes& chunk) {
  return std::all_of(chunk.begin(), chunk.end(), is_space);
}

// Moves a part of a chunk that is longer than a line into the line.
void take_long(Codes& chunk, std::vector<Codes>& line, std::size_t room, const Style& style,
               bool& is_used_up) {
  is_used_up = false;
  if (!style.break_words) {
    if (!line.empty()) return;
    line.push_back(std::move(chunk));
    is_used_up = true;
    return;
  }
  std::size_t end = room;
  if (style.hyphens && chunk.size() > room) {
    std::size_t hyphen = room;
    while (hyphen > 0 && chunk[hyphen - 1] != '-') --hyphen;
    const auto stop = chunk.begin() + static_cast<std::ptrdiff_t>(hyphen > 0 ? hyphen - 1 : 0);
    if (std::any_of(chunk.begin(), stop, [](Code c) { return c != '-'; })) end = hyphen;
  }
  const auto cut = chunk.begin() + static_cast<std::ptrdiff_t>(std::min(end, chunk.size()));
  line.emplace_back(chunk.begin(), cut);
  chunk.erase(chunk.begin(), cut);
}

std::vector<std::string> wrap(const Codes& text, const Style& style) {
  std::vector<Codes> chunks = Chunks(text, style.hyphens).run();
  std::vector<std::string> lines;
  for (std::size_t next = 0; next < chunks.size();) {
    std::vector<Codes> line;
    std::size_t used = 0;
    if (!lines.empty() && is_white(chunks[next])) ++next;
    while (next < chunks.size() && used + chunks[next].size() <= style.width) {
      used += chunks[next].size();
      line.push_back(std::move(chunks[next++]));
    }
    if (next < chunks.size() && chunks[next].size() > style.width) {
      bool is_used_up = false;
      take_long(chunks[next], line, style.width - used, style, is_used_up);
      if (is_used_up) ++next;
    }
    if (!line.empty() && is_white(line.back())) line.pop_back();
    if (line.empty()) continue;
    std::string joined;
    for (const Codes& chunk : line)
      for (const Code code : chunk) append_code_point(joined, code);
    lines.push_back(std::move(joined));
  }
  return lines;
}

}  // namespace

Value wordwrap(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const Value *w = a.find(0, "width"), *long_words = a.find(1, "break_long_words"),
              *s = a.find(2, "wrapstring"), *hyphens = a.find(3, "break_on_hyphens");
  if (v.is_undefined()) v.fail_undefined();
  if (!v.is_string())
    raise_python("AttributeError", "'" + type_name(v) + "' object has no attribute 'splitlines'");
  if (w && w->is_undefined()) w->fail_undefined();
  const std::int64_t width = w ? as_index(*w) : 79;
  const std::string between = s && !s->is_none() ? as_string(*s, "wrapstring") : "\n";
  const Style style{static_cast<std::size_t>(std::max<std::int64_t>(0, width)),
                    long_words ? truthy(*long_words) : true, hyphens ? truthy(*hyphens) : true};
  Callable split("splitlines", find_string_method("splitlines"), Value(v.text()));
  const Value paragraphs = split.call(in, {});
  std::string out;
  bool is_first = true;
  for (const Value& paragraph : paragraphs.items()) {
    if (width <= 0) raise_value_error("invalid width " + std::to_string(width) + " (must be > 0)");
    Codes codes;
    const std::string& text = paragraph.text();
    for (std::size_t pos = 0; pos < text.size();) codes.push_back(next_code_point(text, pos));
    in.budget().charge(codes.size());
    if (!std::exchange(is_first, false)) out += between;
    bool is_first_line = true;
    for (const std::string& line : wrap(codes, style)) {
      if (!std::exchange(is_first_line, false)) out += between;
      out += line;
      in.budget().charge_bytes(line.size() + between.size());
    }
  }
  return Value(std::move(out));
}

}  // namespace sluice::jinja::filters
