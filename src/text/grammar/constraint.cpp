#include "text/grammar/constraint.h"

#include <algorithm>

#include "text/grammar/masks.h"

namespace sluice::grammar {
namespace {

// States with more bytes than these are taken for a choice.
constexpr std::size_t kMaxCandidates = 16;
// How far back likely() looks for white space, in bytes.
constexpr std::size_t kMaxLookBack = 512;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// The white space that probably stands between the end of `text` and `next`.
std::string_view blanks_before(std::string_view text, char next) {
  text.remove_prefix(text.size() - std::min(text.size(), kMaxLookBack));
  const std::size_t last = text.find_last_not_of(" \n\t\r");
  if (last == std::string_view::npos) return {};
  const std::string_view here = text.substr(last + 1);
  // JSON has the space everywhere or nowhere.
  const std::size_t key = last < 2 ? std::string_view::npos : text.rfind("\":", last - 2);
  const bool is_compact =
      key != std::string_view::npos && key + 2 < text.size() && !is_blank(text[key + 2]);
  const bool has_space = (text[last] == ':' || text[last] == ',') && !is_compact;
  std::string_view found = has_space ? " " : "";
  for (std::size_t i = last; i-- > 0;) {
    if (text[i] != text[last]) continue;
    std::size_t end = i + 1;
    while (is_blank(text[end])) ++end;
    if (text[end] != next) continue;
    found = text.substr(i + 1, end - i - 1);
    break;
  }
  return found.starts_with(here) ? found.substr(here.size()) : std::string_view{};
}

}  // namespace

Constraint::Constraint(std::shared_ptr<CompiledGrammar> grammar,
                       std::vector<std::int32_t> stop_tokens)
    : grammar_(std::move(grammar)), stop_tokens_(std::move(stop_tokens)) {}

bool Constraint::is_stop(std::int32_t token) const {
  return std::ranges::find(stop_tokens_, token) != stop_tokens_.end();
}

void Constraint::renew(CompiledGrammar::Session& session) {
  if (generation_ == session.generation()) return;
  generation_ = session.generation();
  Machine& machine = session.machine();
  StateId at = begin_ = machine.begin({{}, true});
  std::size_t done = 0;
  for (End& end : ends_) {
    for (; done < end.text_len; ++done)
      at = machine.step(at, static_cast<unsigned char>(text_[done]),
                        {std::string_view(text_).substr(0, done + 1), true});
    end.state = at;
    machine.restart_work();
  }
}

bool Constraint::fill(std::span<std::uint32_t> bits) {
  std::ranges::fill(bits, 0u);
  if (has_failed_) return false;
  if (is_stopped_) return true;
  CompiledGrammar::Session session(*grammar_);
  renew(session);
  session.masks().fill(state(), text_, bits);
  if (session.machine().is_exhausted()) {
    has_failed_ = true;
    std::ranges::fill(bits, 0u);
    return false;
  }
  const bool can_end = session.machine().can_end(state());
  const std::int32_t size = grammar_->vocabulary().size();
  for (const std::int32_t token : stop_tokens_) {
    if (token < 0 || token >= size) continue;
    can_end ? set_bit(bits, token) : clear_bit(bits, token);
  }
  return true;
}

bool Constraint::accept(std::int32_t token) {
  if (has_failed_ || is_stopped_) return false;
  CompiledGrammar::Session session(*grammar_);
  renew(session);
  Machine& machine = session.machine();
  const auto text_len = static_cast<std::uint32_t>(text_.size());
  if (is_stop(token)) {
    if (!machine.can_end(state())) return false;
    ends_.push_back({text_len, state(), true});
    is_stopped_ = true;
    return true;
  }
  const std::string_view bytes = grammar_->vocabulary().bytes(token);
  if (bytes.empty()) return false;
  StateId at = state();
  for (const char c : bytes) {
    text_ += c;
    at = machine.step(at, static_cast<unsigned char>(c), {text_, true});
    if (at == Machine::kDead || machine.is_exhausted()) {
      has_failed_ = machine.is_exhausted();
      text_.resize(text_len);
      return false;
    }
  }
  ends_.push_back({static_cast<std::uint32_t>(text_.size()), at, false});
  return true;
}

void Constraint::rollback(std::size_t count) {
  check(count <= ends_.size(), "a rollback of {} tokens of {}", count, ends_.size());
  has_failed_ = false;  // the budget of a place counts there alone
  if (count == 0) return;
  ends_.resize(ends_.size() - count);
  text_.resize(ends_.empty() ? 0 : ends_.back().text_len);
  is_stopped_ = false;
}

bool Constraint::can_end() {
  CompiledGrammar::Session session(*grammar_);
  renew(session);
  return session.machine().can_end(state());
}

std::string Constraint::forced(std::size_t max_bytes) {
  if (is_stopped_ || has_failed_) return {};
  CompiledGrammar::Session session(*grammar_);
  renew(session);
  Machine& machine = session.machine();
  StateId at = state();
  std::string text = text_;
  for (std::size_t i = 0; i < max_bytes && !machine.can_end(at); ++i) {
    StateId next = Machine::kDead;
    int only = -1;
    text += '\0';
    for (int byte = 0; byte < 256; ++byte) {
      text.back() = static_cast<char>(byte);
      const StateId to = machine.step(at, static_cast<unsigned char>(byte), {text, true});
      if (to == Machine::kDead) continue;
      if (only >= 0) {
        only = -1;
        break;
      }
      only = byte;
      next = to;
    }
    if (machine.is_exhausted()) {
      has_failed_ = true;
      return {};
    }
    text.back() = static_cast<char>(only);
    if (only < 0) {
      text.pop_back();
      break;
    }
    at = next;
  }
  return text.substr(text_.size());
}

Constraint::Next Constraint::next_of(Machine& machine, StateId at, std::string& text) {
  Next next;
  Machine::ByteSet bytes;
  const std::span<const Item> span = machine.items(at);
  const std::vector<Item> items(span.begin(), span.end());
  for (const Item& item : items) machine.add_first_bytes(item, bytes);
  if (bytes.count() > kMaxCandidates) return next;
  text += '\0';
  int num_others = 0, num_aside = 0, aside = -1;  // aside: blanks and the backslash
  for (int byte = 0; byte < 256 && num_others < 2; ++byte) {
    if (!bytes[static_cast<std::size_t>(byte)]) continue;
    text.back() = static_cast<char>(byte);
    if (machine.step(at, static_cast<unsigned char>(byte), {text, true}) == Machine::kDead)
      continue;
    if (is_blank(text.back()) || byte == '\\') {
      next.has_blanks = next.has_blanks || byte != '\\';
      aside = byte;
      ++num_aside;
    } else {
      next.byte = byte;
      ++num_others;
    }
  }
  text.pop_back();
  if (num_others == 1) return next;
  return {.byte = num_others == 0 && num_aside == 1 ? aside : -1};
}

std::string Constraint::likely(std::size_t max_bytes) {
  if (is_stopped_ || has_failed_ || is_hard_) return {};
  CompiledGrammar::Session session(*grammar_);
  renew(session);
  Machine& machine = session.machine();
  StateId at = state();
  std::string text = text_;
  while (text.size() < text_.size() + max_bytes && !machine.can_end(at)) {
    const Next next = next_of(machine, at, text);
    if (next.byte < 0) break;
    std::string more(1, static_cast<char>(next.byte));
    if (next.has_blanks) more.insert(0, blanks_before(text, more[0]));
    const std::size_t before = text.size();
    for (const char c : more) {
      text += c;
      at = machine.step(at, static_cast<unsigned char>(c), {text, true});
      if (at == Machine::kDead) break;
    }
    if (at != Machine::kDead) continue;
    text.resize(before);
    break;
  }
  is_hard_ = machine.is_exhausted();
  if (is_hard_) return {};
  // A last space is often a part of the token behind it.
  while (text.size() > text_.size() && is_blank(text.back())) text.pop_back();
  return text.substr(text_.size());
}

}  // namespace sluice::grammar
