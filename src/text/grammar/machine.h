// Runs a program (program.h): from a state, by one byte, to the next state.
//
// A state is the set of places where the grammar may stand, each with the context to which its body
// returns. A context is a set of such places again, so contexts form the graph-structured stack of
// Tomita 1986; calls of one body at one byte share a context, as Earley's items share an origin.
// States, contexts and the data of places are interned, and transitions are remembered, so a text
// that was seen before costs one look-up a byte: parts without recursion become a finite automaton.
//
//   Machine machine(program, store, budget);
//   StateId state = machine.begin();
//   state = machine.step(state, '{', text);      // kDead: the byte is not allowed
//
// Values under a check make a transition depend on the text. Such transitions are not remembered.
// In a walk without a text (Text::is_known false) they end in kUnknown: the caller looks at each
// text by itself.
//
// One thread at a time. When the budget of a step runs out is_exhausted() is true, and results mean
// nothing.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/interner.h"
#include "text/grammar/language_lengths.h"
#include "text/grammar/program.h"
#include "text/grammar/spelling.h"

namespace sluice::grammar {

using StateId = std::uint32_t;

// Where a grammar may stand.
struct Item {
  Place place = 0;
  std::uint32_t data = 0;     // its meaning depends on the instruction
  std::uint32_t context = 0;  // the places to which the body returns
  std::uint64_t hash_value(std::uint64_t hash) const {
    return mix_hash(mix_hash(hash, std::uint64_t{place} << 32 | data), context);
  }
  auto operator<=>(const Item&) const = default;
};

// The text up to and with the byte of a step, for grammars that read values.
struct Text {
  std::string_view bytes;
  bool is_known = true;
  // The state behind it is used for the rest of one token alone. Distinct keys that it ends are
  // looked up and not noted, so a token that ends two of them may be refused.
  bool is_trial = false;
};

class Machine {
 public:
  static constexpr StateId kDead = 0;
  static constexpr StateId kUnknown = ~StateId{0};

  // `program` outlives the machine.
  Machine(const Program& program, LanguageStore store, const Budget& budget);

  StateId begin(Text text);
  StateId step(StateId state, unsigned char byte, Text text);
  // Whether the text so far is whole.
  bool can_end(StateId state) const { return states_.tag(state) != 0; }
  std::span<const Item> items(StateId state) const { return states_.at(state); }
  // The state that holds these items alone, as they stand after a byte.
  StateId state_of(std::span<const Item> items);

  // The state at one place, before any byte is read there.
  StateId state_at(const Item& item, Text text);
  // A context that returns to `back` alone, and what such a context returns to.
  std::uint32_t context_of(const Item& back) { return contexts_.add(std::span(&back, 1)); }
  const Item& return_of(std::uint32_t context) const { return contexts_.at(context)[0]; }

  // A state of which no text of up to `horizon` bytes tells that it is another, with the counts of
  // long loops and the beginnings of values left out. Masks are remembered under it.
  StateId horizon_form(StateId state, std::uint64_t horizon);

  // The text that a kText item reads.
  struct TextPlace {
    const TextLeaf* leaf = nullptr;
    LanguageStore::Id language = 0;
    std::uint64_t count = 0;
    Spelling spelling{};
  };
  bool is_text(const Item& item) const {
    return program_.code[item.place].op == Instruction::kText;
  }
  TextPlace text_place(const Item& item) const;
  Item text_item(const Item& like, const TextPlace& at);
  LanguageStore& languages() { return store_; }
  // The state behind the end of a text, before any byte; kUnknown: a value has to be looked at.
  StateId state_behind(const Item& text);
  // Whether nothing but `byte` can come in a state that has items.
  bool begins_with(StateId state, unsigned char byte) const;
  // Whether any code point of the range may come in a language, so that a text can be finished.
  bool can_follow(LanguageStore::Id language, char32_t first, char32_t last);
  // Adds the bytes with which an item may go on, and perhaps others.
  using ByteSet = std::bitset<256>;
  void add_first_bytes(const Item& item, ByteSet& bytes);
  // The slack of a text leaf's language: see Lengths::slack.
  std::optional<std::uint64_t> slack(const Item& text);

  // Work of the steps from here on is counted anew.
  void restart_work();
  bool is_exhausted() const { return is_exhausted_ || store_.is_exhausted(); }
  bool reads_values() const { return program_.reads_values; }
  std::uint64_t bytes() const;
  std::size_t num_states() const { return states_.size(); }

 private:
  using Op = Instruction::Op;
  static constexpr std::uint32_t kTemporary = 1u << 31;  // in a context's id
  static constexpr std::uint32_t kNoStart = ~0u;         // a value that began anywhere
  static constexpr StateId kEmptySlot = ~StateId{0} - 1;
  static constexpr std::uint32_t kTrialKeys = 1u << 31;  // in a key set's id: one more key

  // A body that is called in this step; its context is not complete yet.
  struct Call {
    Place body = 0;
    std::vector<Item> returns;
    std::vector<std::uint32_t> includes;  // contexts whose returns are this call's too
    bool is_empty = false;                // the body has ended without a byte
    std::uint32_t context = 0;            // when resolved
    int progress = 0;                     // of resolve(): 0 new, 1 begun, 2 done
    std::vector<Item> all;
  };
  // Few transitions stand in a list, many in a table of 256 states.
  struct Edge {
    StateId to = 0;
    unsigned char byte = 0;
  };
  struct Transitions {
    std::unique_ptr<Edge[]> list;
    std::unique_ptr<std::array<StateId, 256>> table;
    std::uint8_t count = 0, capacity = 0;
  };
  static constexpr std::uint8_t kMaxListed = 32;

  // machine.cpp
  StateId find(StateId state, unsigned char byte) const;
  void remember(StateId state, unsigned char byte, StateId to);
  void clear();
  void push(Place place, std::uint32_t data, std::uint32_t context);
  void activate(Place place, std::uint32_t data, std::uint32_t context) {
    active_.push_back({place, data, context});
  }
  void advance(const Item& item, unsigned char byte);
  void close();
  void process(const Item& item);
  void end_body(std::uint32_t context);
  void come_back(const Item& to, bool is_empty);
  void call(Place body, const Item& back);
  void tail_call(Place body, std::uint32_t context);
  Call& call_of(Place body, std::uint32_t& id);
  void run_check(const Item& item, const Instruction& instruction);
  bool is_viable(std::uint32_t context);
  StateId finish();
  std::uint32_t start() const;

  // machine_contexts.cpp
  std::uint32_t resolve(std::uint32_t context);
  void gather(Call& call);
  std::uint32_t horizon_context(std::uint32_t context, std::uint64_t horizon);
  Item horizon_item(const Item& item, std::uint64_t horizon);

  // machine_text.cpp
  void enter_text(Place place, const TextPlace& at, std::uint32_t context);
  void advance_text(const Item& item, unsigned char byte);
  bool may_follow(const TextPlace& at, std::uint32_t leaf, char32_t first, char32_t last);
  bool can_finish(std::uint32_t leaf, LanguageStore::Id language, std::uint64_t count);
  std::uint32_t pack_text(const TextPlace& at);

  // machine_objects.cpp
  struct ObjectState {
    std::uint32_t object = 0;
    std::uint32_t next = 0;        // the first member that may come; declared order alone
    std::uint32_t extra_keys = 0;  // the keys of extras so far, if they are distinct
    std::uint64_t count = 0;
    std::vector<std::uint64_t> seen{};
  };
  void process_object(const Item& item, const Instruction& instruction);
  void advance_object(const Item& item, const Instruction& instruction, unsigned char byte);
  void advance_key(const Item& item, const ObjectProgram& object, unsigned char byte);
  void call_or_skip(Place body, const Item& back);
  void process_bare(const Item& item, const Instruction& instruction);
  std::uint32_t pack_object(const ObjectState& state);
  const ObjectState& object_state(std::uint32_t id);
  ObjectState with_member(const ObjectState& state, std::uint32_t member) const;
  bool is_possible(const ObjectState& state) const;
  bool can_add(const ObjectState& state, std::uint32_t member) const;
  bool can_add_extra(const ObjectState& state) const;
  bool can_add_any(const ObjectState& state) const;
  bool can_close(const ObjectState& state) const;
  std::uint64_t num_missing(const ObjectState& state, std::uint32_t* first) const;
  std::uint32_t key_set_of(std::vector<std::string> keys, const std::string& key);
  bool add_extra(const ObjectState& state, std::uint32_t start, std::uint32_t& out);
  bool any_below(const ObjectState& state, std::uint32_t node) const;

  std::uint32_t pack(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) {
    const Word words[] = {{a}, {b}, {c}};
    return data_.add(words);
  }

  const Program& program_;
  LanguageStore store_;
  const Budget budget_;
  bool is_exhausted_ = false;
  std::uint64_t work_ = 0;
  std::uint64_t table_bytes_ = 0;

  ListInterner<Item> states_, contexts_;
  ListInterner<Word> data_;
  ListInterner<Word> object_words_;
  std::vector<ObjectState> object_states_;
  std::vector<std::vector<std::string>> key_sets_;                     // sorted keys of extras
  std::unordered_multimap<std::uint64_t, std::uint32_t> key_set_ids_;  // by hash
  std::vector<Transitions> transitions_;
  std::unordered_map<std::uint32_t, Lengths> lengths_;  // by text leaf
  std::unordered_map<std::uint32_t, std::optional<std::uint64_t>> slacks_;
  std::unordered_map<std::uint32_t, std::uint32_t> horizon_contexts_;
  std::unordered_map<StateId, StateId> horizon_states_;
  std::uint64_t horizon_ = 0;  // of those two

  // one step
  Text text_;
  bool is_conditional_ = false;  // a value was looked at, or began
  bool is_unknown_ = false;      // a value should have been looked at, and the text is not known
  bool can_end_ = false;
  std::vector<Item> stack_, active_;
  std::vector<Call> calls_;
  std::size_t num_calls_ = 0;
  std::vector<std::uint32_t> call_of_body_, call_stamp_;  // by place
  std::uint32_t stamp_ = 0;
  std::vector<Item> seen_;  // a hash table
  std::vector<std::uint32_t> seen_stamp_;
  std::size_t num_seen_ = 0;
};

}  // namespace sluice::grammar
