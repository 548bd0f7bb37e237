#include "server/core/grammars.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "server/core/grammar_drafts.h"
#include "text/grammar/constraint.h"

namespace sluice {
namespace {

class GrammarConstraint : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Tokenizer> tokenizer,
                    std::shared_ptr<grammar::CompiledGrammar> compiled,
                    std::vector<std::int32_t> end_tokens)
      : tokenizer_(std::move(tokenizer)),
        compiled_(std::move(compiled)),
        constraint_(compiled_, std::move(end_tokens)) {}
  bool fill(std::span<std::uint32_t> bits) override { return constraint_.fill(bits); }
  bool accept(std::int32_t token) override { return constraint_.accept(token); }
  void rollback(std::size_t count) override { constraint_.rollback(count); }
  void draft(int max_drafts, std::vector<std::int32_t>& drafts) override {
    const std::string text = constraint_.likely(kDraftBytes * static_cast<std::size_t>(max_drafts));
    append_drafts(*tokenizer_, compiled_->vocabulary(), text, max_drafts, drafts);
  }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<grammar::CompiledGrammar> compiled_;
  grammar::Constraint constraint_;
};

// A constraint that nobody asked for: where it leaves no token, any token may come.
class OptionalConstraint : public TokenConstraint {
 public:
  explicit OptionalConstraint(std::unique_ptr<TokenConstraint> inner) : inner_(std::move(inner)) {}

  bool fill(std::span<std::uint32_t> bits) override {
    if (!is_free_ && inner_->fill(bits) &&
        std::ranges::any_of(bits, [](std::uint32_t word) { return word != 0; }))
      return true;
    is_free_ = true;
    std::ranges::fill(bits, ~std::uint32_t{0});
    return true;
  }
  bool accept(std::int32_t token) override {
    if (!is_free_ && inner_->accept(token)) return true;
    is_free_ = true;
    ++num_free_;
    return true;
  }
  void rollback(std::size_t count) override {
    const std::size_t free = std::min(count, num_free_);
    num_free_ -= free;
    if (num_free_ == 0) is_free_ = false;
    inner_->rollback(count - free);
  }
  void draft(int max_drafts, std::vector<std::int32_t>& drafts) override {
    if (!is_free_) inner_->draft(max_drafts, drafts);
  }

 private:
  const std::unique_ptr<TokenConstraint> inner_;
  bool is_free_ = false;
  std::size_t num_free_ = 0;  // tokens that inner_ has not taken
};

constexpr int kCompileThreads = 2;
// Requests wait so long at the expense of others that are to be read, and then beside them.
constexpr std::chrono::milliseconds kShortWait{2};
// How soon it is noticed that nobody waits.
constexpr std::chrono::milliseconds kLook{20};

Fault too_many_compiles() {
  return {429, "overloaded", "",
          "Too many grammars wait to be compiled. Send this one again later."};
}

// Steps of a compile that nobody asked for, about a fifth of a second.
constexpr std::uint64_t kMaxOptionalWork = 10'000'000;

}  // namespace

Grammars::Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size,
                   Limits limits)
    : tokenizer_(std::move(tokenizer)),
      vocab_size_(vocab_size),
      limits_(limits),
      compilers_(kCompileThreads) {}
Grammars::Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size)
    : Grammars(std::move(tokenizer), vocab_size, Limits{}) {}

std::shared_ptr<const grammar::Vocabulary> Grammars::vocabulary() {
  const std::lock_guard lock(vocabulary_mutex_);
  if (vocabulary_ == nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    vocabulary_ = std::make_shared<const grammar::Vocabulary>(*tokenizer_, vocab_size_);
    log_info("the vocabulary is prepared for grammars: {} ms, {:.1f} MiB",
             std::chrono::duration_cast<std::chrono::milliseconds>(
                 std::chrono::steady_clock::now() - begin)
                 .count(),
             static_cast<double>(vocabulary_->bytes_used()) / (1 << 20));
  }
  return vocabulary_;
}

template <class T>
bool Grammars::submit(const std::shared_ptr<Compile<T>>& compile,
                      std::function<Result<T>(const grammar::Budget&)> make,
                      std::function<void()> then) {
  return compilers_.submit([compile, make = std::move(make), then = std::move(then)] {
    try {
      grammar::Budget budget;
      budget.cancelled = compile->cancelled;
      compile->promise.set_value(make(budget));
    } catch (const std::exception& error) {
      log_error("a grammar was not compiled: {}", error.what());
      compile->promise.set_value(Fault{500, "internal_error", "", "The grammar was not compiled."});
    }
    if (then) then();
  });
}

template <class T>
std::optional<Fault> Grammars::wait(Compile<T>& compile, const WhyUnwanted& why_unwanted) {
  const auto is_ready = [&](std::chrono::milliseconds time) {
    return compile.result.wait_for(time) == std::future_status::ready;
  };
  const auto give_up = [&](Fault fault) {
    const std::lock_guard lock(mutex_);
    if (--compile.num_waiting == 0) *compile.cancelled = true;
    return fault;
  };
  if (is_ready(kShortWait)) return std::nullopt;
  const JobPool::Waiting waiting;
  if (!waiting.is_replaced()) return give_up(too_many_compiles());
  while (!is_ready(kLook))
    if (auto fault = why_unwanted ? why_unwanted() : std::nullopt) return give_up(*fault);
  return std::nullopt;
}

std::shared_ptr<Grammars::Compile<Grammars::Made>> Grammars::find_or_begin(
    const std::string& key, const grammar::GrammarSource& source, bool is_optional) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  // Nobody waits for a cancelled one.
  if (found != by_key_.end() && !*found->second->compile->cancelled) {
    entries_.splice(entries_.begin(), entries_, found->second);
    ++found->second->compile->num_waiting;
    return found->second->compile;
  }
  auto compile = std::make_shared<Compile<Made>>();
  const auto make = [this, source, is_optional](const grammar::Budget& limits) -> Result<Made> {
    Made made;
    grammar::Budget budget = limits;
    if (is_optional) budget.max_work = kMaxOptionalWork;
    auto grammar = grammar::compile(source, vocabulary(), budget, {}, &made.unenforced);
    if (!grammar) return grammar.fault();
    made.grammar = *grammar;
    return made;
  };
  const auto keep = [this, key, self = compile.get()] {
    const std::lock_guard lock(mutex_);
    if (!self->result.get().ok()) forget(key, self);  // it costs little, and may be of a budget
    make_room();
  };
  if (!submit<Made>(compile, make, keep)) return nullptr;
  if (found != by_key_.end()) forget(key, found->second->compile.get());
  entries_.push_front({key, compile});
  by_key_.emplace(key, entries_.begin());
  return compile;
}

Result<ConstraintMaker> Grammars::maker(const grammar::GrammarSource& source,
                                        const std::vector<std::int32_t>& end_tokens,
                                        bool is_optional,
                                        std::vector<grammar::Unenforced>* unenforced,
                                        const WhyUnwanted& why_unwanted) {
  const std::string key = (is_optional ? "optional " : "") + source.key();
  const std::shared_ptr<Compile<Made>> compile = find_or_begin(key, source, is_optional);
  if (compile == nullptr) return too_many_compiles();
  if (auto fault = wait(*compile, why_unwanted)) return *fault;
  const Result<Made>& result = compile->result.get();
  if (!result) return result.fault();
  if (unenforced != nullptr) *unenforced = result->unenforced;
  const std::shared_ptr<const grammar::Vocabulary> vocabulary = this->vocabulary();
  std::vector<std::int32_t> ends;
  for (const std::int32_t token : end_tokens)
    if (!vocabulary->is_text(token)) ends.push_back(token);
  if (ends.empty())
    return Fault{400, "no_end_token", "",
                 "Constrained output needs an end token of the model; `ignore_eos` and a grammar "
                 "exclude each other."};
  return ConstraintMaker([tokenizer = tokenizer_, grammar = result->grammar, ends,
                          is_optional]() -> std::unique_ptr<TokenConstraint> {
    auto constraint = std::make_unique<GrammarConstraint>(tokenizer, grammar, ends);
    if (!is_optional) return constraint;
    return std::make_unique<OptionalConstraint>(std::move(constraint));
  });
}

Result<std::shared_ptr<const grammar::CaptureReader>> Grammars::captures(
    const grammar::GrammarSource& source, const WhyUnwanted& why_unwanted) {
  using Reader = std::shared_ptr<const grammar::CaptureReader>;
  auto compile = std::make_shared<Compile<Reader>>();
  const auto make = [this, source](const grammar::Budget& budget) {
    return grammar::compile_captures(source, *vocabulary(), budget);
  };
  if (!submit<Reader>(compile, make, nullptr)) return too_many_compiles();
  if (auto fault = wait(*compile, why_unwanted)) return *fault;
  return compile->result.get();
}

void Grammars::forget(const std::string& key, const Compile<Made>* compile) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || found->second->compile.get() != compile) return;
  entries_.erase(found->second);
  by_key_.erase(found);
}

void Grammars::make_room() {
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool is_done =
        it->compile->result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    // A fault is about to be forgotten.
    if (is_done && it->compile->result.get().ok())
      bytes += it->key.size() + it->compile->result.get()->grammar->bytes();
    ++count;
    if (is_done && count > 1 && (bytes > limits_.max_bytes || count > limits_.max_grammars)) {
      by_key_.erase(it->key);
      it = entries_.erase(it);
      continue;
    }
    ++it;
  }
}

}  // namespace sluice
