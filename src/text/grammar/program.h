// A grammar as instructions, which the machine (machine.h) runs on sets of places.
//
// A body is a run of instructions that ends with kEnd. Rules, repeated parts, nodes that are used
// twice and the parts of objects are bodies; kCall and its like run them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/language_store.h"

namespace sluice::grammar {

using Place = std::uint32_t;  // the index of an instruction

struct Instruction {
  enum Op : std::uint8_t {
    kAccept,    // the whole grammar is fulfilled
    kEnd,       // of a body
    kJump,      // to a
    kSplit,     // to each of targets[a, a + b)
    kLoop,      // the same with two: another round, which begins here or before, and its end
    kBytes,     // reads strings[a]
    kText,      // reads a text of texts[a]
    kCall,      // body a
    kRepeat,    // repeats[a], from the first round
    kRepeated,  // ... behind a round; the place's data is the number of rounds before
    kCheck,     // checks[a]: its body
    kChecked,   // ... behind the body; the data is where the value began
    kGuard,
    kMark,             // where capture a / 2 begins, or ends if a is odd
    kOpaque,           // body a, which holds no capture
    kObject,           // objects[a]: after '{'
    kObjectFirst,      // before the first key or '}'; the data is the object's state
    kObjectMore,       // behind a value
    kObjectSeparator,  // ... and behind the space behind it
    kObjectComma,      // reads ','
    kObjectKey,        // before a key
    kObjectQuote,      // reads '"'
    kObjectKeyText,    // reads a member's key and '"'
    kObjectColon,      // behind ':'; the data is the state and the member
    kObjectExtra,      // behind the key of extras[b]
    kObjectExtraColon,
    kBare,       // a bare object: before all members
    kBareFirst,  // ... the data is the object's state
    kBareMore,   // behind a member
    kBareNext,   // ... and behind the separator
  };
  Op op = kEnd;
  std::uint32_t a = 0, b = 0;
};

struct TextLeaf {
  LanguageStore::Id language = 0;
  bool is_json = false;
  std::uint64_t min = 0, max = kUnbounded;  // code points
  bool has_bounds() const { return min != 0 || max != kUnbounded; }
};

struct RepeatLoop {
  std::uint32_t min = 0, max = 0;  // max: kMany where there is no bound
  Place body = 0;
  bool is_lazy = false;  // of two ways through it, fewer rounds come first
  static constexpr std::uint32_t kMany = ~0u;
};

// A member's key, one code point a node. Nodes are in the order of a walk that visits children in
// the order of their code points, so the members below a node are a range of `order`.
struct KeyTree {
  struct Node {
    std::uint32_t first_child = 0, num_children = 0;  // in `children`
    std::uint32_t begin = 0, end = 0;                 // in `order`
    std::int32_t member = -1;                         // that ends here
  };
  struct Child {
    char32_t code;
    std::uint32_t node;
  };
  std::vector<Node> nodes;
  std::vector<Child> children;
  std::vector<std::uint32_t> order;  // members
};

struct ObjectProgram {
  struct Member {
    Place body = 0;
    bool is_required = false;
    bool is_allowed = true;  // some text fulfils it
  };
  struct Extra {
    Place key = 0, value = 0;  // bodies; the key's ends behind the quote
  };
  std::vector<Member> members;
  std::vector<Extra> extras;
  bool any_order = false, distinct_extras = false, has_extras = false;
  bool counts = false;  // there are bounds on the number of keys
  std::uint64_t min_keys = 0, max_keys = kUnbounded;
  std::vector<std::vector<std::uint32_t>> needs;  // by member; empty without dependents
  std::vector<std::uint64_t> required;            // a bit a member
  // by member, and one past the last: how many required members are here or behind, and the first
  // of them (~0: none)
  std::vector<std::uint32_t> required_behind, next_required;
  KeyTree keys;
  Place space = 0, colon = 0;  // bodies
  // places of the object's own instructions
  Place first = 0, more = 0, separator = 0, comma = 0, key = 0, quote = 0, key_text = 0,
        colon_end = 0, close = 0, extra = 0;
};

struct CheckBody {
  Place body = 0;
  std::shared_ptr<const ValueCheck> check;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<Place> targets;
  std::vector<std::string> strings;
  std::vector<TextLeaf> texts;
  std::vector<RepeatLoop> repeats;
  std::vector<CheckBody> checks;
  std::vector<ObjectProgram> objects;
  Place begin = 0, accept = 0;
  bool reads_values = false;  // holds checks, guards or distinct keys: the text itself matters
  std::uint64_t bytes() const;
};

// The instructions of `grammar` from `root` on. Where the grammar keeps captures, alternatives
// stand in their order, and parts without captures are bodies that kOpaque runs. Faults:
// `unsatisfiable_grammar`, `grammar_too_large`, `undefined_rule`. The grammar's languages are used
// for questions.
Result<Program> make_program(Grammar& grammar, NodeId root);

// Which nodes some finite text fulfils, by index; the objects' members are judged one by one.
std::vector<bool> find_satisfiable(Grammar& grammar);

}  // namespace sluice::grammar
