// The expressions of Languages (languages.h) and their lazily built automata.
//
// An expression is interned, so an equal expression has an equal id. A state of an automaton is an
// expression: the texts that may still follow. A step by a code point is the expression's
// derivative, which is remembered for the interval of code points that all parts of the expression
// treat alike.
//
// Derivatives keep counts as numbers: the derivative of r{m,n} is that of r followed by r{m-1,n-1}.
// Rules that keep the number of states small stand in language_rules.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/languages.h"
#include "text/grammar/text_automaton.h"

namespace sluice::grammar {

// One past the code points: stands for "the text begins here" while a regex is built.
inline constexpr char32_t kStartMark = 0x110000;

class LanguageStore {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNone = 0, kEmpty = 1, kAnyChar = 2, kAnyText = 3;

  enum class Kind : std::uint8_t {
    kNone,
    kEmpty,
    kChars,   // one code point of a set
    kTrie,    // a step of a set of literals: children by code point
    kConcat,  // left, right; left is no kConcat
    kAny,     // any of a list
    kAll,     // all of a list
    kNot,
    kRepeat,     // from min to max times
    kAutomaton,  // a state of a TextAutomaton, from which some text follows
  };
  struct Expression {
    Kind kind = Kind::kNone;
    bool has_empty = false;    // the empty text is in the language
    bool is_positive = false;  // holds no kAll and no kNot: never empty unless it is kNone
    Id left = 0, right = 0;    // kChars: the set; kConcat: both; kNot, kRepeat: left;
                               // kAutomaton: the automaton and its state
    std::uint64_t min = 0;     // kRepeat; lists: the first index in list(), kTrie as well
    std::uint64_t max = 0;     // kRepeat; lists: the number of entries
  };
  struct Child {
    char32_t code;
    Id next;
  };

  explicit LanguageStore(const Budget& budget);
  LanguageStore(const LanguageStore&) = default;
  LanguageStore(LanguageStore&&) noexcept = default;
  // The expressions alone, with the same ids: steps of automata are found anew.
  LanguageStore without_automata() const;

  const Expression& at(Id id) const { return expressions_[id]; }
  std::span<const Id> list(Id id) const {
    return std::span(lists_).subspan(at(id).min, at(id).max);
  }
  std::span<const Child> children(Id id) const {
    return std::span(children_).subspan(at(id).min, at(id).max);
  }
  std::span<const CodeRange> set(Id id) const {
    const auto& [first, count] = sets_[at(id).left];
    return std::span(ranges_).subspan(first, count);
  }

  Id chars(std::vector<CodeRange> ranges);
  Id one_char(char32_t code);
  Id literals(std::vector<std::u32string> texts);
  Id concat(Id left, Id right);
  Id any_of(std::span<const Id> parts);
  Id any_of(std::initializer_list<Id> parts) { return any_of(std::span(parts)); }
  Id all_of(std::span<const Id> parts);
  Id all_of(std::initializer_list<Id> parts) { return all_of(std::span(parts)); }
  Id complement(Id of);
  Id repeat(Id of, std::uint64_t min, std::uint64_t max);
  Id automaton(std::shared_ptr<const TextAutomaton> automaton);

  // The state after `code` from state `id`; kNone: no text goes on so.
  Id step(Id id, char32_t code) {
    if (code < 128 && id < automaton_.size() && automaton_[id] != nullptr &&
        automaton_[id]->ascii != nullptr) {
      const Id next = (*automaton_[id]->ascii)[code];
      if (next != kUnknown) return next;
    }
    return step_slowly(id, code);
  }
  // The largest interval around `code` all of whose code points lead to the same state.
  CodeRange interval(Id id, char32_t code);
  // interval() and step() at once, where both are wanted.
  struct Arc {
    CodeRange range;
    Id next;
  };
  Arc arc(Id id, char32_t code);
  bool accepts(Id id) const { return at(id).has_empty; }
  // Whether any text follows from state `id`.
  bool is_live(Id id) { return at(id).is_positive ? id != kNone : explore_live(id); }
  // True: any text, whatever it is, can be made a text of `id` by writing on. False: not, or that
  // would take long to tell.
  bool never_dies(Id id);
  // The state that stands for `id` where no text of more than `horizon` characters is looked at.
  Id horizon_form(Id id, std::uint64_t horizon) { return horizon_form(id, horizon, 0); }
  // So many digits may follow, whichever they are; 0 also where that is not known.
  std::uint64_t free_digits(Id id) const {
    const Expression& expression = at(id);
    if (expression.kind != Kind::kAutomaton) return 0;
    return text_automata_[expression.left]->free_digits(text_states_[expression.right]);
  }
  // No text that is looked at has more digits than these.
  void set_digit_horizon(std::uint64_t digits) { digit_horizon_ = digits; }

  // All states from `id` on, and the edges between those from which a text follows. False: the
  // budget ran out.
  struct Graph {
    std::vector<Id> states;
    std::unordered_map<Id, std::uint32_t> index;
    std::vector<std::vector<std::uint32_t>> next;
  };
  bool graph(Id id, std::size_t max_states, Graph& out);

  bool is_exhausted() const { return is_exhausted_; }
  void exhaust() { is_exhausted_ = true; }
  // Work from here on is counted anew.
  void restart_work(std::uint64_t limit) {
    work_ = 0;
    max_work_ = limit;
  }
  bool spend(std::uint64_t work) {
    work_ += work;
    if (work_ > max_work_ || budget_.is_cancelled()) is_exhausted_ = true;
    return !is_exhausted_;
  }
  std::uint64_t bytes() const { return bytes_; }
  const Budget& budget() const { return budget_; }

 private:
  static constexpr Id kUnknown = ~Id{0};
  struct State {
    std::vector<std::pair<CodeRange, Id>> ranges;  // sorted
    std::unique_ptr<std::array<Id, 128>> ascii;    // the same, of a state that is used often
    std::uint8_t num_uses = 0;
    std::int8_t live = -1;  // -1: not known
    State() = default;
    State(const State& other)
        : ranges(other.ranges),
          ascii(other.ascii ? std::make_unique<std::array<Id, 128>>(*other.ascii) : nullptr),
          num_uses(other.num_uses),
          live(other.live) {}
    State& operator=(const State&) = delete;
  };
  static constexpr std::uint8_t kManyUses = 64;

  Id add(Expression expression, std::span<const Id> list, std::span<const Child> children);
  Id add_set(std::vector<CodeRange> ranges);
  void grow();
  bool same(Id id, const Expression& expression, std::span<const Id> list,
            std::span<const Child> children) const;
  std::uint64_t hash_of(const Expression& expression, std::span<const Id> list,
                        std::span<const Child> children) const;

  void merge_sets(std::vector<Id>& parts, bool all);
  void merge_repeats(std::vector<Id>& parts);
  struct TrieNode {
    std::vector<Child> children;
    bool is_end = false;
  };
  Id finish_trie(std::vector<TrieNode>& path);
  Id concat_one(Id left, Id right);
  Id state_of_automaton(Id automaton, const std::string& state);
  static constexpr int kMaxHorizonDepth = 16;
  Id horizon_form(Id id, std::uint64_t horizon, int depth);
  bool is_digits(Id id) const;  // one of '0' to '9'

  State& state(Id id);
  Id step_slowly(Id id, char32_t code);
  Id derive(Id id, char32_t code);
  Id derived(Id id) const { return derived_[id].result; }
  bool is_derived(Id id) const {
    return id < derived_.size() && derived_[id].stamp == derived_stamp_;
  }
  Id derive_one(Id id, char32_t code);
  bool explore_live(Id id);
  bool never_dies_by_form(Id id) const;
  bool is_finite_by_form(Id id) const;

  Budget budget_;
  std::uint64_t work_ = 0, max_work_ = 0;
  std::uint64_t digit_horizon_ = kUnbounded;
  std::uint64_t bytes_ = 0, automaton_bytes_ = 0;  // of all, and of automaton_ alone
  void add_automaton_bytes(std::uint64_t bytes) {
    bytes_ += bytes;
    automaton_bytes_ += bytes;
  }

  bool is_exhausted_ = false;

  std::vector<Expression> expressions_;
  std::vector<Id> lists_;
  std::vector<Child> children_;
  std::vector<CodeRange> ranges_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sets_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> set_ids_;  // by hash
  std::vector<Id> table_;              // open addressing over expressions_; 0: free
  std::array<Id, 128> ascii_chars_{};  // one_char() of each; kNone: not made
  std::vector<std::shared_ptr<const TextAutomaton>> text_automata_;
  std::vector<std::string> text_states_;  // of all of them
  std::unordered_map<std::string, Id> text_state_ids_;
  struct CopiedState {  // a deep copy, so that a store can be copied
    std::unique_ptr<State> value;
    CopiedState() = default;
    CopiedState(const CopiedState& other)
        : value(other.value ? std::make_unique<State>(*other.value) : nullptr) {}
    CopiedState& operator=(const CopiedState&) = delete;
    CopiedState(CopiedState&&) noexcept = default;
    CopiedState& operator=(CopiedState&&) noexcept = default;
    State* operator->() { return value.get(); }
    bool operator!=(std::nullptr_t) const { return value != nullptr; }
  };
  std::vector<CopiedState> automaton_;  // by expression
  // one derivative: the results so far, by expression; valid where the stamp is this derivative's
  struct Derived {
    std::uint32_t stamp = 0;
    Id result = kNone;
  };
  std::vector<Derived> derived_;
  std::uint32_t derived_stamp_ = 0;
  std::vector<Id> derive_stack_;         // work space of derive()
  std::vector<Id> heads_;                // work space of interval()
  std::vector<Id> parts_;                // of derive_one()
  std::vector<Id> flat_;                 // of any_of() and all_of()
  std::vector<std::int8_t> never_dies_;  // by expression; -1: not known
};

}  // namespace sluice::grammar
