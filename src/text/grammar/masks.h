// Which tokens may come in a state of a machine.
//
// A token is allowed where one of the state's items allows it, so items are looked at one by one:
//   - a text between the quotes of JSON: the tokens that stay inside depend on the text's language
//     alone. Most languages can go on whatever comes, so all inside tokens of the vocabulary are
//     allowed. For the others the language walks the vocabulary's trie (masks_text.cpp). Tokens
//     that close the string are a text in front of a quote and a suffix. The language decides
//     about the one, and what stands behind the string about the other;
//   - another text at whose end the grammar ends: the same without quotes;
//   - all else: the machine walks the trie (masks_walk.cpp). Below a byte that is not allowed
//     nothing is looked at, and where a token opens a string of the first kind the walk leaves the
//     trie.
//
// Masks are lists of pieces, which masks share: equal pieces are one, and a piece is stored by what
// differs from a common set of tokens. Masks are remembered by the state's horizon form
// (machine.h); strings with bounds of their length are put together for each mask. Tokens whose
// fate depends on the value of a check are remembered as such and tried each time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/grammar/machine.h"
#include "text/grammar/vocabulary.h"

namespace sluice::grammar {

class Masks {
 public:
  // Both outlive the masks. `max_bytes`: of remembered masks.
  Masks(Machine& machine, const Vocabulary& vocabulary, std::uint64_t max_bytes);

  // Sets the bits of the tokens that may come in `state`; `bits` is zero before. `text`: all bytes
  // so far, where the grammar reads values.
  void fill(StateId state, std::string_view text, std::span<std::uint32_t> bits);

  std::uint64_t bytes() const { return bytes_; }

 private:
  using Bits = std::span<std::uint32_t>;
  using Id = LanguageStore::Id;
  // Ascending numbers: the steps from one to the next, seven bits a byte.
  struct Numbers {
    std::vector<std::uint8_t> steps;
    bool operator==(const Numbers&) const = default;
  };
  // A set of tokens: `dense`, or the vocabulary's base without `remove` if there is one, and `add`.
  struct Piece {
    static constexpr std::int32_t kNoBase = -1;
    std::int32_t base = kNoBase;
    std::vector<std::uint32_t> dense{};
    Numbers add{}, remove{};
    std::uint64_t bytes() const {
      return sizeof(Piece) + 64 + dense.size() * 4 + add.steps.size() + remove.steps.size();
    }
    bool operator==(const Piece&) const = default;
  };
  using PieceRef = std::shared_ptr<const Piece>;
  struct Entry {
    std::vector<PieceRef> pieces;
    std::vector<std::int32_t> remove;  // of the first `num_first` pieces
    std::size_t num_first = 0;
    PieceRef unknown;  // the nodes of tokens, as numbers in `add`; null: none
    std::uint64_t last_use = 0;
  };
  // What a language does from one of its states on.
  struct Inside {
    PieceRef tokens;           // after which the text can go on
    bool accepts_all = false;  // each prefix
    bool rejects_few = true;
    std::vector<std::uint32_t> rejects;  // the prefixes that are no texts of it, if they are few
    std::vector<bool> accepts;           // by prefix, if they are not
    std::uint64_t last_use = 0;
    bool accepts_prefix(std::uint32_t prefix) const {
      if (!rejects_few) return accepts[prefix];
      return accepts_all || std::ranges::find(rejects, prefix) == rejects.end();
    }
  };
  // What may follow a string, by suffix.
  struct Behind {
    std::vector<std::uint32_t> allowed, unknown;
    std::vector<bool> is_allowed, is_unknown;
    std::uint64_t last_use = 0;
  };
  // The tokens that close a string.
  struct Quotes {
    PieceRef tokens;
    PieceRef unknown;  // as in an Entry
    std::uint64_t last_use = 0;
  };
  // What a walk has found; a token may be there twice.
  struct Found {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint32_t> unknown;  // nodes
  };
  // How a state is looked at.
  struct Plan {
    StateId form = Machine::kDead;  // of what has no bounds
    std::vector<Item> bounded;
  };
  // A state in which strings have begun, and what else it holds.
  struct Opening {
    StateId rest = Machine::kDead;
    std::vector<Item> strings;
  };

  // masks.cpp
  const Plan& plan_of(StateId state);
  const Entry& entry_of(StateId form);
  void make(StateId form, Entry& entry);
  void mark_unknown();
  void take_marked();  // in order
  void add_string(const Item& item, Entry& entry, std::vector<std::uint32_t>& unknown);
  template <class Use>
  static void each_of(const Numbers& numbers, Use use);
  static void add_number(Numbers& numbers, std::uint32_t& last, std::uint32_t number);
  static std::uint64_t hash_of(const Piece& piece);
  void apply(const Entry& entry, Bits bits) const;
  void apply(const Piece& piece, Bits bits) const;
  PieceRef shared(Piece piece);
  PieceRef piece_of(std::span<const std::uint32_t> bits);
  PieceRef piece_of(const std::vector<std::int32_t>& tokens);
  PieceRef unknown_piece_of(std::vector<std::uint32_t> nodes);  // null: none
  static void append(const PieceRef& unknown, std::vector<std::uint32_t>& nodes);
  void make_room();

  // masks_walk.cpp
  // The tokens that may come in `state`; where `blanks` is not 0, those behind up to `blanks`
  // characters of white space, and the white space itself.
  void walk(StateId state, std::uint64_t blanks, Found& found);
  const Opening& opening_of(StateId state);
  void open_strings(const Opening& opening, const Vocabulary::Opened& opened, Found& found);
  void enter_strings(const Opening& opening, std::uint32_t node, Found& found);
  Machine::ByteSet first_bytes(StateId state);
  // White space of up to `limit` characters, in front of what else may come.
  bool is_blank_text(const Item& item, std::uint64_t& limit);
  void try_unknown(StateId state, std::string_view text, std::span<const std::uint32_t> nodes,
                   Bits bits);
  void add_subtree(std::uint32_t node, std::vector<std::uint32_t>& out) const;
  void walk_language(Id language, bool is_json, Bits bits);

  // masks_text.cpp
  // A text between the quotes of JSON, and between two of its characters.
  bool is_string(const Item& item);
  bool is_bounded_string(const Item& item);  // and its length has bounds with some slack
  bool is_last_text(const Item& item);       // no JSON, and nothing follows its end
  // How many characters a string may still have, and must.
  struct Room {
    std::uint64_t min = 0, max = kUnbounded;
    std::uint64_t safe = kUnbounded;  // fewer than these leave a way to the end
  };
  Room room_of(const Item& item);
  const Inside& inside_of(Id language);
  PieceRef last_text_of(Id language);
  const Behind& behind(const Item& item);
  const Quotes& quotes_of(const Item& item);      // by the item's language
  const Quotes& all_quotes_of(const Item& item);  // of any text
  void add_bounded_string(const Item& item, Bits bits, std::vector<std::uint32_t>& unknown);
  Id language_of(const Item& item);  // its horizon form
  void find_prefixes(Id language, Inside& inside);

  // Kinds of characters of which `limit` may follow, without a step that is special.
  struct Loop {
    std::uint64_t kinds = 0;
    std::uint64_t limit = kUnbounded;
    bool is_digits = false;  // each leads to a state of its own, so that short ones count, too
    bool holds(std::uint32_t longest) const {
      return longest >= (is_digits ? 2u : kMinLongest) && longest <= limit;
    }
  };
  // A loop of shorter tokens is walked as any other.
  static constexpr std::uint32_t kMinLongest = 4;
  Loop loop_of(Id language, bool is_json);
  // The kinds all of whose characters lead from `language` to `to`.
  std::uint64_t kinds_to(Id language, Id to, bool is_json);
  // A loop in which the text is, or enters with its next character.
  Loop entered_loop(Id language, bool is_json);
  bool walk_loop(const Item& item, Entry& entry, Found& found);

  Machine& machine_;
  const Vocabulary& vocabulary_;
  const std::uint64_t max_bytes_;
  const PieceRef all_inside_;
  std::uint64_t bytes_ = 0, clock_ = 0;
  std::unordered_map<std::uint64_t, PieceRef> pieces_;  // by hash
  std::unordered_map<Id, Id> horizon_languages_;
  std::unordered_map<StateId, Plan> plans_;
  std::unordered_map<StateId, Entry> entries_;
  std::unordered_map<StateId, Opening> openings_;
  std::unordered_map<Id, Inside> insides_;
  std::unordered_map<Id, PieceRef> last_texts_;
  std::unordered_map<StateId, Behind> behinds_;          // by the state behind the text
  std::unordered_map<std::uint64_t, Quotes> quotes_;     // by language and state behind
  std::unordered_map<std::uint64_t, Loop> loops_;        // by language, and whether it is JSON
  std::unordered_map<std::uint64_t, bool> are_strings_;  // by place and context of the item
  std::vector<StateId> path_, behind_path_;
  std::vector<bool> in_loop_;
  std::vector<Machine::ByteSet> first_;
  std::vector<bool> has_first_, is_plain_;
  std::vector<std::uint32_t> own_, list_bits_;
  std::vector<std::uint32_t> unknown_;
  std::vector<std::uint64_t> marks_;  // of nodes
  std::string text_;
};

}  // namespace sluice::grammar
