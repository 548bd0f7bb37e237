// The nodes of a Grammar, as compile() sees them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"

namespace sluice::grammar {

struct Node {
  enum Kind : std::uint8_t {
    kNone,
    kEmpty,
    kBytes,     // `bytes`
    kText,      // `language`; in JSON spelling if `is_json`; `min` to `max` code points
    kSequence,  // children
    kAny,       // children
    kRepeat,    // the child, from `min` to `max` times
    kRule,      // `rule`
    kObject,    // `object`
    kChecked,   // the child, with `check`
    kGuard,
    kCapture,  // the child, a part of its own: `capture`
  };
  Kind kind = kNone;
  bool is_json = false;
  bool is_ordered = false;  // ways through it count in order
  bool is_lazy = false;     // kRepeat: as few rounds as can be
  LanguageId language{};
  RuleId rule{};
  std::uint32_t capture = 0;
  std::uint64_t min = 0, max = 0;
  std::string bytes{};
  std::vector<NodeId> children{};
  std::shared_ptr<const ObjectSpec> object{};
  std::shared_ptr<const ValueCheck> check{};
};

inline constexpr NodeId kNoneNode{0};
inline constexpr NodeId kEmptyNode{1};

inline std::size_t index_of(NodeId id) {
  return static_cast<std::size_t>(id);
}
inline std::size_t index_of(RuleId id) {
  return static_cast<std::size_t>(id);
}

}  // namespace sluice::grammar
