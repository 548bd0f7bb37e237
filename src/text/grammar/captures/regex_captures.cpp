#include "text/grammar/captures/regex_captures.h"

#include <algorithm>
#include <optional>

#include "text/grammar/regex_tree.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

// Groups bound the depth of the tree.
class Converter {
 public:
  Converter(Grammar& grammar, const RegexTree& tree) : grammar_(grammar), tree_(tree) {}

  Result<NodeId> run() {
    const NodeId node = convert(tree_.root, {true, true});
    if (fault_) return *fault_;
    return node;
  }

 private:
  // Whether a part stands at the beginning of the text, and at its end.
  struct Edges {
    bool is_start, is_end;
  };

  NodeId refuse(const RegexNode& node, std::string_view what) {
    if (!fault_)
      fault_ = Fault{400, "unsupported_captures", "",
                     fmt::format("The regular expression has {} at character {}; captures of named "
                                 "groups are not read beside it.",
                                 what, node.position)};
    return grammar_.none();
  }

  bool has_width(std::uint32_t id) const {
    const RegexNode& node = tree_.nodes[id];
    return node.kind != RegexNode::kStart && node.kind != RegexNode::kEnd;
  }

  NodeId convert(std::uint32_t id, Edges edges) {
    const RegexNode& node = tree_.nodes[id];
    switch (node.kind) {
      case RegexNode::kPure: {
        if (!node.is_literal) return grammar_.text(static_cast<LanguageId>(node.language));
        std::string text;
        for (const char32_t code : node.literal) append_utf8(text, code);
        return grammar_.bytes(text);
      }
      case RegexNode::kConcat: {
        std::vector<NodeId> parts;
        for (std::size_t i = 0; i < node.children.size(); ++i) {
          const auto begin = node.children.begin();
          const auto here = begin + static_cast<std::ptrdiff_t>(i);
          const auto wide = [&](std::uint32_t child) { return has_width(child); };
          parts.push_back(
              convert(*here, {edges.is_start && std::none_of(begin, here, wide),
                              edges.is_end && std::none_of(here + 1, node.children.end(), wide)}));
        }
        return grammar_.ordered(grammar_.sequence(parts));
      }
      case RegexNode::kAlternate: {
        std::vector<NodeId> parts;
        for (const std::uint32_t child : node.children) parts.push_back(convert(child, edges));
        return grammar_.ordered(grammar_.any_of(parts));
      }
      case RegexNode::kRepeat: {
        const bool is_once = node.max == 1;
        const NodeId child =
            convert(node.children[0], {edges.is_start && is_once, edges.is_end && is_once});
        if (node.min == 1 && is_once) return child;
        if (node.min != 0 || !is_once)
          return grammar_.ordered(grammar_.repeat(child, node.min, node.max), node.is_lazy);
        if (node.is_lazy) return grammar_.ordered(grammar_.any_of({grammar_.empty(), child}));
        return grammar_.ordered(grammar_.optional(child));
      }
      case RegexNode::kGroup:
        return grammar_.capture(convert(node.children[0], edges), Grammar::CaptureKind::kNamed,
                                node.name);
      case RegexNode::kStart:
        return edges.is_start ? grammar_.empty() : refuse(node, "an anchor inside");
      case RegexNode::kEnd:
        return edges.is_end ? grammar_.empty() : refuse(node, "an anchor inside");
      case RegexNode::kWordBoundary:
        return refuse(node, "a word boundary");
      case RegexNode::kLookahead:
      case RegexNode::kLookbehind:
        return refuse(node, "a look-around");
    }
    return grammar_.none();
  }

  Grammar& grammar_;
  const RegexTree& tree_;
  std::optional<Fault> fault_;
};

}  // namespace

Result<NodeId> regex_node(Grammar& grammar, std::string_view pattern) {
  const Result<LanguageId> language = grammar.languages().regex(pattern);
  if (!language) return language.fault();
  if (!grammar.keeps_captures()) return grammar.text(*language);
  const Result<RegexTree> tree = read_regex(grammar.languages().store(), pattern, {});
  if (!tree) return tree.fault();
  if (tree->num_named == 0) return grammar.text(*language);
  return Converter(grammar, *tree).run();
}

}  // namespace sluice::grammar
