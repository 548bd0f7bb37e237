#include "text/grammar/languages.h"

#include <algorithm>
#include <unordered_map>

#include "text/grammar/language_lengths.h"
#include "text/grammar/language_store.h"
#include "text/grammar/regex.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

using Id = LanguageStore::Id;

Id raw(LanguageId id) {
  return static_cast<Id>(id);
}
LanguageId wrap(Id id) {
  return static_cast<LanguageId>(id);
}

std::vector<Id> raw_ids(std::span<const LanguageId> parts) {
  std::vector<Id> ids;
  ids.reserve(parts.size());
  for (const LanguageId part : parts) ids.push_back(raw(part));
  return ids;
}

std::u32string codes_of(std::string_view text) {
  std::u32string out;
  const std::string valid = is_valid_utf8(text) ? std::string() : to_valid_utf8(text);
  for (std::string_view rest = valid.empty() ? text : valid; !rest.empty();) {
    const Utf8Step next = next_utf8(rest);
    out += next.code;
    rest.remove_prefix(static_cast<std::size_t>(next.size));
  }
  return out;
}

// Maximum bytes of patterns that are remembered with their languages.
constexpr std::size_t kMaxRegexBytes = 1 << 20;

Fault too_large() {
  return {400, "grammar_too_large", "",
          "A pattern needs more memory or steps than its budget allows."};
}

}  // namespace

Languages::Languages(const Budget& budget) : store_(std::make_unique<LanguageStore>(budget)) {}
Languages::~Languages() = default;
Languages::Languages(Languages&&) noexcept = default;
Languages& Languages::operator=(Languages&&) noexcept = default;

Languages Languages::clone() const {
  Languages copy(store_->budget());
  copy.store_ = std::make_unique<LanguageStore>(*store_);
  copy.regexes_ = regexes_;
  copy.regex_bytes_ = regex_bytes_;
  return copy;
}

LanguageId Languages::none() {
  return wrap(LanguageStore::kNone);
}
LanguageId Languages::empty_text() {
  return wrap(LanguageStore::kEmpty);
}
LanguageId Languages::any_char() {
  return wrap(LanguageStore::kAnyChar);
}
LanguageId Languages::any_text() {
  return wrap(LanguageStore::kAnyText);
}

LanguageId Languages::chars(std::span<const CodeRange> ranges) {
  std::vector<CodeRange> copy(ranges.begin(), ranges.end());
  for (CodeRange& range : copy) range.last = std::min<char32_t>(range.last, 0x10FFFF);
  return wrap(store_->chars(std::move(copy)));
}

LanguageId Languages::literal(std::string_view utf8) {
  return wrap(store_->literals({codes_of(utf8)}));
}

LanguageId Languages::literals(std::span<const std::string> utf8) {
  std::vector<std::u32string> texts;
  texts.reserve(utf8.size());
  for (const std::string& text : utf8) texts.push_back(codes_of(text));
  return wrap(store_->literals(std::move(texts)));
}

LanguageId Languages::concat(std::span<const LanguageId> parts) {
  Id language = LanguageStore::kEmpty;
  for (std::size_t i = parts.size(); i-- > 0;) language = store_->concat(raw(parts[i]), language);
  return wrap(language);
}
LanguageId Languages::alternate(std::span<const LanguageId> parts) {
  return wrap(store_->any_of(raw_ids(parts)));
}
LanguageId Languages::intersect(std::span<const LanguageId> parts) {
  return wrap(store_->all_of(raw_ids(parts)));
}
LanguageId Languages::concat(std::initializer_list<LanguageId> parts) {
  return concat(std::span(parts.begin(), parts.size()));
}
LanguageId Languages::alternate(std::initializer_list<LanguageId> parts) {
  return alternate(std::span(parts.begin(), parts.size()));
}
LanguageId Languages::intersect(std::initializer_list<LanguageId> parts) {
  return intersect(std::span(parts.begin(), parts.size()));
}

LanguageId Languages::complement(LanguageId of) {
  return wrap(store_->complement(raw(of)));
}

LanguageId Languages::repeat(LanguageId of, std::uint64_t min, std::uint64_t max) {
  return wrap(min > max ? LanguageStore::kNone : store_->repeat(raw(of), min, max));
}

LanguageId Languages::automaton(std::shared_ptr<const TextAutomaton> automaton) {
  return wrap(store_->automaton(std::move(automaton)));
}

Result<LanguageId> Languages::regex(std::string_view pattern, const RegexOptions& options) {
  std::string key;
  key.reserve(pattern.size() + 2);
  key += options.match == RegexMatch::kSearch ? 's' : 'f';
  key += options.dialect == RegexDialect::kEcma ? 'e' : 'p';
  key += pattern;
  if (const auto known = regexes_.find(key); known != regexes_.end()) return known->second;
  const Result<Id> id = parse_regex(*store_, pattern, options);
  if (!id) return id.fault();
  if (regex_bytes_ + key.size() <= kMaxRegexBytes && !store_->is_exhausted()) {
    regex_bytes_ += key.size();
    regexes_.emplace(std::move(key), wrap(id.value()));
  }
  return wrap(id.value());
}

Result<bool> Languages::is_empty(LanguageId language) {
  const bool is_live = store_->is_live(raw(language));
  if (store_->is_exhausted()) return too_large();
  return !is_live;
}

bool Languages::contains(LanguageId language, std::string_view utf8) {
  Id id = raw(language);
  for (const char32_t code : codes_of(utf8)) id = store_->step(id, code);
  return store_->accepts(id);
}

bool Languages::contains_empty(LanguageId language) {
  return store_->accepts(raw(language));
}

Result<std::string> Languages::example(LanguageId language) {
  struct From {
    Id state;
    char32_t code;
  };
  const Id root = raw(language);
  std::unordered_map<Id, From> from = {{root, {root, 0}}};
  std::vector<Id> queue = {root};
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const Id top = queue[next];
    if (store_->accepts(top)) {
      std::u32string codes;
      for (Id up = top; up != root; up = from[up].state) codes += from[up].code;
      std::string text;
      for (std::size_t i = codes.size(); i-- > 0;) append_utf8(text, codes[i]);
      return text;
    }
    for (const char32_t begin : {U'a', U'0', U' ', U'\0'}) {  // printable characters first
      for (char32_t code = begin; code <= 0x10FFFF;) {
        const auto [range, to] = store_->arc(top, code);
        if (store_->is_exhausted()) return too_large();
        if (store_->is_live(to) && from.try_emplace(to, From{top, code}).second)
          queue.push_back(to);
        code = range.last + 1;
        if (code >= 0xD800 && code < 0xE000) code = 0xE000;
      }
    }
  }
  if (store_->is_exhausted()) return too_large();
  return Fault{400, "empty_language", "", "The pattern matches no text."};
}

Result<std::uint64_t> Languages::shortest(LanguageId language) {
  const std::uint64_t length = shortest_length(*store_, raw(language));
  if (store_->is_exhausted()) return too_large();
  return length;
}

Result<bool> Languages::has_length(LanguageId language, std::uint64_t min, std::uint64_t max) {
  if (min > max) return false;
  Lengths lengths(*store_, raw(language));
  const bool has = lengths.has(raw(language), min, max);
  if (store_->is_exhausted()) return too_large();
  return has;
}

bool Languages::is_exhausted() const {
  return store_->is_exhausted();
}
std::uint64_t Languages::bytes() const {
  return store_->bytes();
}
const Budget& Languages::budget() const {
  return store_->budget();
}

}  // namespace sluice::grammar
