#include "text/grammar/constraint.h"

#include <algorithm>

#include "text/grammar/masks.h"

namespace sluice::grammar {

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

}  // namespace sluice::grammar
