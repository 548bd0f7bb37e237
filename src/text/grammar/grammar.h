// Grammars over bytes: what front ends (regex, EBNF, structural tags, JSON Schema) build and the
// matcher runs.
//
//   Grammar grammar;
//   const NodeId digits = grammar.text(grammar.languages().regex("[0-9]+").value());
//   const RuleId list = grammar.declare_rule("list");
//   grammar.define_rule(list, grammar.sequence({
//       grammar.bytes("["), grammar.optional(grammar.any_of({digits, grammar.rule(list)})),
//       grammar.bytes("]")}));
//   Result<std::shared_ptr<const CompiledGrammar>> compiled =
//       compile(std::move(grammar), grammar.rule(list));
//
// A node is a set of byte strings. Nodes are immutable and may be used in several places; only a
// rule may be used in its own definition. Left recursion is allowed, and so is ambiguity.
//
// A node that no finite text fulfils (none(), a rule that needs itself, an object whose required
// member is none()) is dropped from every any_of, optional and repeat with min 0 that holds it.
// compile() refuses a grammar of which nothing is left.
//
// One thread. Builder functions do not fail: when the budget is used up they return none(), and
// compile() refuses with `grammar_too_large`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/languages.h"

namespace sluice::grammar {

enum class NodeId : std::uint32_t {};
enum class RuleId : std::uint32_t {};

// A condition on a value that no automaton decides. The matcher runs it at the byte that may end
// the value; where it fails the value cannot end there, and no mask allows that byte.
// Called from several threads at once.
class ValueCheck {
 public:
  virtual ~ValueCheck() = default;
  // `value`: exactly the bytes of the checked node, as the model wrote them.
  virtual bool passes(std::string_view value) const = 0;
  // Whether some text that begins with `prefix` may pass. Called at guard nodes. Answering true too
  // often is safe, but the model may then run into a value that cannot end.
  virtual bool is_viable(std::string_view prefix) const {
    (void)prefix;
    return true;
  }
};

// An object, from '{' to '}'.
struct ObjectSpec {
  struct Member {
    std::string key;  // the key's text in UTF-8, not its JSON spelling; keys are distinct
    NodeId value{};
    bool is_required = false;
  };
  // Keys that are no member's. The languages of two extras should not overlap: a key of both may
  // have a value of either. Keys of members are taken out by the grammar itself.
  struct Extra {
    LanguageId keys{};
    NodeId value{};
  };
  std::vector<Member> members;
  std::vector<Extra> extras;
  // false: members come in the order of `members`, then the extras. true: any order.
  bool any_order = false;
  // Bounds on the number of keys. A member's key is never written twice. The keys of extras may
  // repeat unless `distinct_extras` is set, which costs a look at the text when such a key ends.
  std::uint64_t min_keys = 0, max_keys = kUnbounded;
  bool distinct_extras = false;
  // {a, b}: where member a is present, member b must be (indices into `members`).
  std::vector<std::pair<std::uint32_t, std::uint32_t>> dependent;
  // What may stand between tokens: white_space(), or empty(). Used after '{', before '}', around
  // ':' and around ','.
  NodeId space{};
  // Neither braces nor keys: members are their values alone, which spell keys themselves, with
  // `space` between two. Extras have no meaning. Values are not empty, and begin with no rule that
  // the object begins.
  bool is_bare = false;
};

// A node that the matcher sees; internal form of the grammar.
struct Node;

class Grammar {
 public:
  explicit Grammar(const Budget& budget = {});
  ~Grammar();
  Grammar(Grammar&&) noexcept;
  Grammar& operator=(Grammar&&) noexcept;

  Languages& languages() { return languages_; }
  const Languages& languages() const { return languages_; }

  NodeId none();   // nothing
  NodeId empty();  // the empty text
  NodeId bytes(std::string_view text);
  // A text of the language in UTF-8.
  NodeId text(LanguageId language);
  // A text of the language as it stands between the quotes of a JSON string, in every spelling that
  // JSON allows: characters as they are, \n and its like, \/, \uXXXX, surrogate pairs. From
  // min_chars to max_chars code points; bounds of any size cost nothing.
  NodeId json_text(LanguageId language, std::uint64_t min_chars = 0,
                   std::uint64_t max_chars = kUnbounded);
  // The same with its quotes.
  NodeId json_string(LanguageId language, std::uint64_t min_chars = 0,
                     std::uint64_t max_chars = kUnbounded);

  NodeId sequence(std::span<const NodeId> parts);
  NodeId sequence(std::initializer_list<NodeId> parts);
  NodeId any_of(std::span<const NodeId> parts);
  NodeId any_of(std::initializer_list<NodeId> parts);
  NodeId optional(NodeId node);
  // From min to max (kUnbounded: no bound) of `node` in a row; counts are not unrolled.
  NodeId repeat(NodeId node, std::uint64_t min, std::uint64_t max);
  // From min to max of `node` with `separator` between two.
  NodeId separated(NodeId node, NodeId separator, std::uint64_t min, std::uint64_t max);

  RuleId declare_rule(std::string_view name);
  void define_rule(RuleId rule, NodeId node);  // once for each declared rule
  NodeId rule(RuleId rule);

  NodeId object(ObjectSpec spec);
  // `node`, if the check passes. `node` must not hold the empty text.
  NodeId checked(NodeId node, std::shared_ptr<const ValueCheck> check);
  // The empty text, where the innermost checked() value around this place is viable so far; inside
  // the node that was given to checked(), or the rules it uses.
  NodeId guard();

  // Parts of which the text is wanted afterwards (captures/captures.h). Where keep_captures() was
  // not called first, such a part is its node. Otherwise alternatives keep the order of their
  // calls.
  enum class CaptureKind {
    kNamed,
    kSkipped,  // at the end of a named part, it does not belong to it
    kAnswer,   // the answer behind the thoughts
  };
  struct Capture {
    CaptureKind kind{};
    std::string name;
  };
  void keep_captures() { keeps_captures_ = true; }
  bool keeps_captures() const { return keeps_captures_; }
  NodeId capture(NodeId node, CaptureKind kind, std::string_view name = {});
  // Of kept captures: the first way through `node`, or through a repetition with the fewest rounds,
  // counts before others; without captures inside, too. Else the longest text does.
  NodeId ordered(NodeId node, bool is_lazy = false);
  const std::vector<Capture>& captures() const { return captures_; }

  // Up to max_chars of JSON's white space.
  NodeId white_space(std::uint64_t max_chars);
  // Any JSON value with `space` between its tokens, without space around it.
  NodeId any_json(NodeId space);
  NodeId any_json_object(NodeId space);
  NodeId any_json_array(NodeId space);
  // A JSON number of up to 64 digits before the point, 24 behind it, and 4 of an exponent.
  NodeId any_json_number();

  // A node under a name of the front end's own, so that equal parts of several sources are one.
  std::optional<NodeId> named(const std::string& name) const {
    const auto found = named_.find(name);
    return found == named_.end() ? std::nullopt : std::optional(found->second);
  }
  void name(std::string name, NodeId node) { named_.emplace(std::move(name), node); }

  bool is_exhausted() const;

  // For compile().
  const std::vector<Node>& nodes() const { return nodes_; }
  struct Rule {
    std::string name;
    NodeId node{};
    bool is_defined = false;
  };
  const std::vector<Rule>& rules() const { return rules_; }
  void redefine_rule(RuleId rule, NodeId node) {
    rules_[static_cast<std::size_t>(rule)].node = node;
  }

 private:
  NodeId add(Node node);

  Languages languages_;
  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
  struct JsonValue {
    NodeId any, object, array;
  };
  JsonValue json_value(NodeId space);
  std::vector<std::pair<NodeId, JsonValue>> any_values_;        // by the space they were made for
  std::vector<std::pair<std::uint64_t, NodeId>> white_spaces_;  // by max_chars
  std::unordered_map<std::string, NodeId> named_;
  std::vector<Capture> captures_;
  bool keeps_captures_ = false;
  std::uint64_t bytes_ = 0;
  bool is_exhausted_ = false;
};

}  // namespace sluice::grammar
