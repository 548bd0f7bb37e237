// Which tokens may come in a state of a machine.
//
// A mask is a walk of the vocabulary's trie with the machine: below a byte that is not allowed
// nothing is looked at. Inside the plain part of strings almost every token is allowed, and the
// walk would be long; there the vocabulary's classes answer (vocabulary.h):
//   - in a JSON string of any text: the tokens that stay inside, and of the others those whose
//     part from the quote on is allowed behind the string;
//   - in a JSON string of nearly any text, such as a key that is none of a list: the same, and a
//     walk along the exceptions;
//   - in other texts that loop on every plain character: the tokens of plain characters;
//   - in texts that loop on some kinds of characters, such as [a-z0-9_]*: the tokens of these
//   kinds,
//     and a walk that leaves out what is below them.
// A token is allowed where one of the state's items allows it, so items are looked at one by one.
//
// Masks are remembered by the state's horizon form (machine.h), except for strings near the bounds
// of their length, whose masks are put together anew. Tokens whose fate depends on the value of a
// check are remembered as such and tried each time.
#pragma once

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
  // A mask: `base`, or `dense`, with the tokens `add`.
  struct Entry {
    bool has_inside = false;           // the base is the vocabulary's inside tokens
    bool has_plain = false;            // or its plain tokens
    std::vector<std::uint32_t> dense;  // or this
    std::vector<std::int32_t> add, unknown;
    std::uint64_t last_use = 0;
    std::uint64_t bytes() const {
      return sizeof(Entry) + 64 + dense.size() * 4 + (add.size() + unknown.size()) * 4;
    }
  };
  // What may follow the closing quote of a string, by suffix.
  struct Behind {
    std::vector<std::uint32_t> allowed, unknown;
    std::vector<bool> is_allowed;
    std::uint64_t last_use = 0;
  };

  const Entry& entry_of(StateId form);
  void make(StateId form, Entry& entry);
  void apply(const Entry& entry, std::span<std::uint32_t> bits) const;
  void walk(StateId state, std::span<std::uint32_t> bits, std::vector<std::int32_t>& unknown);
  void walk_text(const Item& item, std::span<std::uint32_t> bits,
                 std::vector<std::int32_t>& unknown);
  const Behind& behind_quote(const Item& item);
  void add_bounded_string(const Item& item, std::span<std::uint32_t> bits,
                          std::vector<std::int32_t>& unknown);
  void try_unknown(StateId state, std::string_view text, std::span<const std::int32_t> tokens,
                   std::span<std::uint32_t> bits);
  void add_subtree(std::uint32_t node, std::vector<std::int32_t>& out) const;
  void make_room();

  bool is_string(const Item& item) const;          // a JSON string of any text, between characters
  bool is_bounded_string(const Item& item) const;  // and its length has bounds
  bool is_nearly_string(const Item& item) const;
  bool is_plain_loop(const Item& item) const;
  // Kinds of characters of which `limit` may follow, without a step that is special.
  struct Loop {
    std::uint64_t kinds = 0;
    std::uint64_t limit = kUnbounded;
  };
  Loop loop_of(const Item& item);
  bool walk_loop(const Item& item, std::span<std::uint32_t> bits,
                 std::vector<std::int32_t>& unknown);

  Machine& machine_;
  const Vocabulary& vocabulary_;
  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0, clock_ = 0;
  std::unordered_map<StateId, Entry> entries_;
  std::unordered_map<StateId, Behind> behind_;     // by the state behind the quote
  std::unordered_map<std::uint64_t, Loop> loops_;  // by language, and whether it is JSON
  std::vector<StateId> path_;
  std::vector<bool> in_loop_;
  std::vector<std::uint32_t> scratch_;
  std::string text_;
};

}  // namespace sluice::grammar
